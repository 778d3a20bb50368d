#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 300 s
# Rules of the house that need no build: which room may include which, lengths
# of files, functions and lines, layout, scripts, licenses, variables. What was
# there before a rule stands in known.txt, which may only become shorter. Each
# rule is first tried on a small tree with a fault. Prints TAP.
#
#   test/tidy/tidy.t             look
#   test/tidy/tidy.t --shrink    take out of known.txt what is mended

import collections
import concurrent.futures
import fnmatch
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
KNOWN = 'test/tidy/known.txt'

FILE_LINES = 600
FUNCTION_LINES = 60
CODE_COLUMNS = 80
TEXT_COLUMNS = 120
# The counts in known.txt are those of this one
CLANG_FORMAT = 14

# -- which room may include which: arrows point down

ENGINE = ['src/nprdma', 'src/nprdma/mem', 'src/nprdma/dev',
          'src/nprdma/proto', 'src/nprdma/proto/soft',
          'src/nprdma/proto/rnic', 'src/nprdma/svc', 'src/nprdma/dev/soft',
          'src/nprdma/dev/verbs']
DEVICE = ['src/nprdma', 'src/nprdma/mem', 'src/nprdma/svc', 'src/nprdma/dev']
FACE = ENGINE + ['src/nprdma/face', 'src/nprdma/extension', 'src/ucx']

# include/nprdma is below all. What is directly in src/nprdma is the ground of
# the engine; only extension.h, the table that libnprdma calls, and start.h,
# which starts every part, are its roof.
USES = {
    'include/nprdma': [],
    'kmod': [],
    'src/nprdma': [],
    'src/nprdma/mem': ['src/nprdma'],
    'src/nprdma/svc': ['src/nprdma', 'src/nprdma/mem'],
    'src/nprdma/dev': ['src/nprdma', 'src/nprdma/mem', 'src/nprdma/svc'],
    'src/nprdma/dev/soft': DEVICE,
    'src/nprdma/dev/verbs': DEVICE,
    'src/nprdma/proto': DEVICE,
    'src/nprdma/proto/soft': DEVICE + ['src/nprdma/proto',
                                       'src/nprdma/dev/soft'],
    'src/nprdma/proto/rnic': DEVICE + ['src/nprdma/proto',
                                       'src/nprdma/dev/verbs'],
    'src/nprdma/face': ENGINE,
    'src/nprdma/extension': ENGINE,
    'src/uct/nprdma': FACE,
    'src/ucx': [],
    'src/ucp-hooks': FACE,
    'src/api': ['src/nprdma', 'src/nprdma/extension'],
    'src/tools': FACE,
    'src/files': [],
}

# Texts of licenses; what has no place for a license is named in REUSE.toml
LICENSE_TEXT = re.compile(r'(^|/)(COPYING|LICENSE)$|^LICENSES/')
REUSE = 'REUSE.toml'
# In two parts, or "reuse lint" would read what follows here
SPDX = 'SPDX-' 'License-Identifier: '
ROOMS = ['src', 'include', 'kmod', 'test', 'contrib', 'osu-bench', 'docs', 'm4',
         '.ci', 'LICENSES']


class Skip(Exception):
    """A check cannot be made here, for this reason"""


class Tree:
    """Files of a source tree, by their paths from its top"""

    def __init__(self, top):
        self.top = top
        self.files = sorted(self._git() or self._walk())
        self._texts = {}

    def _git(self):
        if not os.path.exists(os.path.join(self.top, '.git')):
            return []
        try:
            out = subprocess.run(
                ['git', '-c', 'safe.directory=*', 'ls-files', '-z', '-c', '-o',
                 '--exclude-standard'], cwd=self.top, capture_output=True)
        except OSError:
            return []
        return [path for path in out.stdout.decode().split('\0')
                if os.path.isfile(os.path.join(self.top, path))]

    # A tree that was unpacked, not cloned
    def _walk(self):
        yield from (entry.name for entry in os.scandir(self.top)
                    if entry.name.endswith(('.md', '.am', '.ac', '.sh',
                                            '.toml')))
        for room in ROOMS:
            for directory, _, names in os.walk(os.path.join(self.top, room)):
                for name in names:
                    yield os.path.relpath(os.path.join(directory, name),
                                          self.top)

    def text(self, path):
        if path not in self._texts:
            with open(os.path.join(self.top, path), encoding='utf-8',
                      errors='replace') as file:
                self._texts[path] = file.read()
        return self._texts[path]

    def lines(self, path):
        return self.text(path).splitlines()

    def named(self, rooms, ends):
        return [path for path in self.files
                if path.startswith(tuple(rooms)) and path.endswith(tuple(ends))]

    def is_kernel(self, path):
        return path.startswith(('kmod/', 'contrib/rxe/')) or \
            path.endswith('_uapi.h') or re.search(
                r'^#include <linux/(module|kernel)\.h>', self.text(path), re.M)


# Each check returns what it found: a dictionary of numbers and lines that say
# where, by the words that known.txt has between the kind and the number.

class Found(dict):
    def add(self, key, line=None, number=1):
        count, lines = self.get(key, (0, []))
        self[key] = (count + number, lines + ([line] if line else []))


def room_of(path):
    directory, name = os.path.split(path)
    if directory == 'src/nprdma' and name.startswith(('extension.', 'start.')):
        return 'src/nprdma/extension'
    return directory


def includes(tree, path):
    """Each file of the tree that a file includes, or <what is outside>"""
    for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">\n]+)[">]',
                           tree.text(path), re.M):
        for base in (os.path.dirname(path), 'src', 'include', '.'):
            target = os.path.normpath(os.path.join(base, name))
            if target in tree.file_set:
                yield target
                break
        else:
            yield '<%s>' % name


def check_include(tree):
    found = Found()
    tree.file_set = set(tree.files)
    for path in tree.named(['src/', 'kmod/', 'include/'], ['.c', '.h']):
        room = room_of(path)
        if room not in USES:
            found.add(path, '%s: tidy.t knows no room %s: say in USES what it '
                      'may include' % (path, room))
            continue
        for target in includes(tree, path):
            if target.startswith('<'):
                is_up = path.startswith('src/nprdma/') and \
                    target.startswith(('<uct/', '<ucp/'))
            else:
                is_up = room_of(target) not in \
                    USES[room] + [room, 'include/nprdma']
            if is_up:
                found.add('%s -> %s' % (path, target), '%s includes %s, which '
                          'is not below it' % (path, target))
    return found


def circles(edges):
    """Sets of nodes of which each leads to each other (Tarjan)"""
    index, low, stack, result = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges[node]:
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            at = stack.index(node)
            result.append(stack[at:])
            del stack[at:]

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return result


def check_circle(tree):
    """A header and its source are one: NAME.h has how NAME.c is called"""
    found = Found()
    edges = collections.defaultdict(set)
    tree.file_set = set(tree.files)
    for path in tree.named(['src/', 'kmod/', 'include/'], ['.c', '.h']):
        edges[path[:-2]].update(
            target[:-2] for target in includes(tree, path)
            if target.endswith('.h') and target[:-2] != path[:-2])
    edges.update({target: set() for target in
                  set(itertools.chain(*edges.values())) - set(edges)})
    for circle in circles(edges):
        rooms = sorted({room_of(node + '.h') for node in circle})
        if len(rooms) > 1:
            for node in circle:
                found.add(node, '%s is in a circle of %d files across %s' % (
                    node, len(circle), ', '.join(rooms)))
    return found


# -- lengths

def check_file(tree):
    found = Found()
    for path in tree.named(['src/'], ['.c', '.h']):
        count = len(tree.lines(path))
        if count > FILE_LINES:
            found.add(path, '%s: %d lines, at most %d' % (path, count,
                                                          FILE_LINES), count)
    return found


def functions(lines):
    """Name, first line and number of lines of each function of a C file"""
    start = 0
    for number, line in enumerate(lines):
        if line == '{':
            head = number
            while head > start and re.match(r'[ \t\w]', lines[head - 1]) and \
                    not lines[head - 1].endswith(';'):
                head -= 1
            name = re.search(r'(\w+) ?\(', ' '.join(lines[head:number]))
            start = number
        elif line.startswith('}') and lines[start:start + 1] == ['{']:
            yield (name[1] if name else '?'), head + 1, number - head + 1
            start = number + 1


def check_function(tree):
    found = Found()
    for path in tree.named(['src/'], ['.c', '.h']):
        for name, line, count in functions(tree.lines(path)):
            if count > FUNCTION_LINES:
                found.add('%s %s' % (path, name), '%s:%d: %s() has %d lines, '
                          'at most %d' % (path, line, name, count,
                                          FUNCTION_LINES), count)
    return found


def is_unbroken(tree, path, line):
    """A row of a table; a message of the kernel, which is searched for whole"""
    if path.endswith('.md'):
        return line.startswith('|')
    return re.match(r'[^"]*"[^"]*"\W*$', line) and tree.is_kernel(path)


def check_columns(tree):
    found = Found()
    code = tree.named(['src/', 'include/', 'kmod/', 'test/', 'contrib/',
                       'osu-bench/'],
                      ['.c', '.h', '.cc', '.awk', '.pml', '.py', '.t'])
    text = tree.named(['docs/', 'contrib/', 'README.md'], ['.md'])
    for path in sorted({*code, *scripts(tree), *text}):
        limit = TEXT_COLUMNS if path.endswith('.md') else CODE_COLUMNS
        for number, line in enumerate(tree.lines(path), 1):
            width = len(line.expandtabs(8))
            if width > limit and not is_unbroken(tree, path, line):
                found.add(path, '%s:%d: %d columns, at most %d' % (
                    path, number, width, limit))
    return found


# -- tools

def run(command, **options):
    """What a tool says. Skip if it is not there."""
    environment = dict(os.environ, LC_ALL='C.UTF-8', GIT_CONFIG_NOSYSTEM='1',
                       GIT_CONFIG_GLOBAL='/dev/null')
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env=environment,
                              **options)
    except FileNotFoundError:
        raise Skip('%s is missing: contrib/setup.sh' % command[0]) from None


def shares(paths, size, count):
    """Groups of files, in which the large ones are spread"""
    paths = sorted(paths, key=size, reverse=True)
    return [paths[i::count] for i in range(min(count, len(paths)))]


LITERAL = re.compile(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'')
VALUES = re.compile(r'(=|\)|[(,{]|return)\{$|[=(,{]\s+\{$|\benum( \w+)? \{$')
LAMBDA = re.compile(r'[)\]] (-> \w+ )?\{$')
END = re.compile(r'[;{}]$|\*/$|^(case .*|default|\w+):$')
HEAD = re.compile(r'(\} )?(else|do)$|'
                  r'(\} )?(else )?(if|for|while|switch) \(.*\)$')


def continues(line, text):
    """Does a line go on what is so far of a statement?"""
    line = LITERAL.sub('""', line)
    if not line or not text or re.match(r'#|/[*/]|\*/|\* |\{$', text) or \
            re.match(r'#|/[*/]|\*', line):
        return False
    if VALUES.search(line):
        return True
    if LAMBDA.search(line):
        return text == '};'
    if line.count('(') > line.count(')') or text == '};' and line[-1] == '{':
        return True
    return not END.search(line) and not HEAD.match(line)


def statements(text):
    """Each statement in one line, and the numbers of the lines it begins in"""
    lines, numbers = [], []
    for number, line in enumerate(text.split('\n'), 1):
        rest = line.strip()
        if lines and continues(lines[-1].strip(), rest):
            lines[-1] += ' ' + rest
        else:
            lines.append(line)
            numbers.append(number)
    return lines, numbers


def plain(text):
    """The layout of statements alone: where each begins, and what it is. How one
    of several lines is broken, and columns within a line, clang-format cannot be
    told as the house does it."""
    lines, _ = statements(text)
    done = []
    for line in lines:
        indent = len(line) - len(line.lstrip(' '))
        rest = re.sub('  +', ' ', line[indent:])
        rest = re.sub(r' (?=[*&]+[)>,])', '', rest)
        rest = re.sub(r'(?<=\*) (?=\w)| (?=->)', '', rest)
        rest = re.sub(r'(?<=[({[]) | (?=[)}\]])', '', rest)
        done.append(line[:indent] + re.sub('^# +', '#', rest))
    return '\n'.join(done)


def check_format(tree):
    version = re.search(r'version (\d+)', run(['clang-format',
                                               '--version']).stdout)
    if not version or int(version[1]) != CLANG_FORMAT:
        raise Skip('clang-format %d is wanted, this is %s' % (
            CLANG_FORMAT, version[1] if version else 'none'))
    paths = [path for path in
             tree.named(['src/', 'include/', 'test/', 'contrib/', 'osu-bench/'],
                        ['.c', '.h', '.cc']) if not tree.is_kernel(path)]
    found = Found()
    with tempfile.TemporaryDirectory() as work:
        for path in paths:
            for side in 'ab':
                name = os.path.join(work, side, path)
                os.makedirs(os.path.dirname(name), exist_ok=True)
                with open(name, 'w', encoding='utf-8') as file:
                    file.write(plain(tree.text(path)) if side == 'a'
                               else tree.text(path))
        style = '--style=file:' + os.path.join(tree.top, '.clang-format')
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for out in pool.map(
                    lambda share: run(['clang-format', '-i', style] + share,
                                      cwd=os.path.join(work, 'b')),
                    shares(paths, lambda path: len(tree.text(path)), 8)):
                if out.returncode != 0:
                    found.add('clang-format', out.stdout.strip())
        for path in paths:
            name = os.path.join(work, 'b', path)
            with open(name, encoding='utf-8') as file:
                text = plain(file.read())
            with open(name, 'w', encoding='utf-8') as file:
                file.write(text)
        diff = ['git', 'diff', '--no-index']
        out = run(diff + ['--numstat', '-z', 'a', 'b'], cwd=work).stdout
        for added, removed, path in re.findall(
                r'(\d+)\t(\d+)\t\0a/([^\0]*)\0[^\0]*\0', out):
            number = max(int(added), int(removed))
            hunks = run(diff + ['-U0', 'a/' + path, 'b/' + path],
                        cwd=work).stdout
            found.add(path, layout_fault(path, tree.text(path), hunks, number),
                      number)
    return found


def layout_fault(path, text, hunks, number):
    """One line: which, and how to see what is wanted"""
    _, numbers = statements(text)
    at = [numbers[max(int(line), 1) - 1]
          for line in re.findall(r'^@@ -(\d+)', hunks, re.M)]
    return '%s: %d lines differ from what clang-format makes, at %s%s: ' \
        'clang-format %s | diff %s - (how a statement is broken into lines ' \
        'is free)' % (path, number, ', '.join(map(str, at[:5])),
                      ' and more' if len(at) > 5 else '', path, path)


def scripts(tree):
    """Those of a shell; and ours, which no end of a name tells"""
    result = []
    for path in tree.files:
        first = tree.text(path)[:64].split('\n')[0]
        if first.startswith('#!'):
            if re.search(r'\b(ba|da|busybox )?sh\b', first):
                result.append(path)
        elif path.endswith(('.sh', '.t')):
            result.append(path)
    return result


class Clean:
    """Remembers in the build directory that a slow tool had nothing to say of
    this version of its input"""

    def __init__(self, tree, name, parts):
        build = os.environ.get('NPRDMA_BUILD')
        self.hash = hashlib.sha256('\0'.join(parts).encode()).hexdigest()
        self.path = build and tree.top == TOP and os.path.isdir(build) and \
            os.path.join(build, name)

    def is_known(self):
        if not self.path or not os.path.exists(self.path):
            return False
        with open(self.path, encoding='utf-8') as file:
            return file.read() == self.hash

    def remember(self):
        if self.path:
            with open(self.path, 'w', encoding='utf-8') as file:
                file.write(self.hash)


def check_shellcheck(tree):
    found = Found()
    clean = Clean(tree, '.tidy-shellcheck', [
        run(['shellcheck', '--version']).stdout] + [
            text for path in scripts(tree) + tree.named(['.shellcheckrc'], [''])
            for text in (path, tree.text(path))])
    if clean.is_known():
        return found
    busybox = [path for path in scripts(tree)
               if tree.text(path).startswith('#!/bin/busybox')]
    others = [path for path in scripts(tree) if path not in busybox]
    commands = [['-s', 'dash'] + busybox] if busybox else []
    commands += shares(others, lambda path: len(tree.text(path)), 8)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for out in pool.map(lambda words: run(['shellcheck', '-f', 'gcc'] +
                                              words, cwd=tree.top), commands):
            for line in out.stdout.splitlines():
                found.add(line.split(':')[0], line)
            if out.returncode not in (0, 1):
                found.add('shellcheck', 'exit code %d' % out.returncode)
    if not found:
        clean.remember()
    return found


# -- licenses

def licensed_by_name(tree):
    """One pattern of REUSE.toml's names that come with a license: * is no /,
    ** is anything"""
    names = []
    table = tomllib.loads(tree.text(REUSE)) if REUSE in tree.files else {}
    for part in table.get('annotations', []):
        if SPDX.rstrip(': ') in part:
            path = part['path']
            names += [path] if isinstance(path, str) else path
    return re.compile('|'.join(
        re.escape(name).replace(r'\*\*', '.*').replace(r'\*', '[^/]*')
        for name in names) or '(?!)')


def check_license(tree):
    found = Found()
    by_name = licensed_by_name(tree)
    for path in tree.files:
        head = '\n'.join(tree.lines(path)[:10])
        if not LICENSE_TEXT.search(path) and not by_name.fullmatch(path) and \
                SPDX not in head:
            found.add(path, '%s: no %s in its first lines, and %s does not '
                      'name it' % (path, SPDX.rstrip(': '), REUSE))
        elif path.endswith(('.c', '.h')) and tree.is_kernel(path) and \
                not re.search('License-Identifier: .*GPL-2.0', head):
            found.add(path, '%s runs in the kernel, but is not under GPL-2.0' %
                      path)
    return found


# -- variables

OURS = re.compile(r'(?<![A-Za-z0-9_])NPRDMA_[A-Z0-9_]*[A-Z0-9]\b')
TAKEN = re.compile(r'getenv\("(NPRDMA_[A-Z0-9_]+)"\)'
                   r'|\$\{(NPRDMA_[A-Z0-9_]+):?[-+?=]'
                   r'|environ(?:\.get\(|\[)[\'"](NPRDMA_[A-Z0-9_]+)')


def is_document(path):
    return path.startswith('docs/') or path.endswith('.md')


def check_variable(tree):
    """docs.t has UCX_NPRDMA_*, which it asks the built transport about"""
    found = Found()
    documents, sources, taken = {}, set(), {}
    for path in tree.files:
        text = tree.text(path)
        if is_document(path):
            text = re.sub(r'^\.TH .*', '', text.replace('\\-', '-'), flags=re.M)
            documents.update(dict.fromkeys(OURS.findall(text), path))
        elif not path.startswith('test/tidy/'):
            sources.update(OURS.findall(text))
            for names in TAKEN.findall(text):
                taken.setdefault(''.join(names), path)
    for name, path in documents.items():
        if name not in sources:
            found.add(name, '%s names %s, which nothing has' % (path, name))
    for name, path in taken.items():
        if name not in documents:
            found.add(name, '%s takes %s from the environment, which no '
                      'document names' % (path, name))
    return found


# -- what leads to something else

# A path below docs, from the top; or from the sources in a script's variable
DOCS = re.compile(r'(?:(?<![\w./$)}"-])(?:\.\./)*|_SRC"?/|srcdir\)/)'
                  r'(docs/[\w./*\[\]-]*)')
# Papers and the numbered sections of the design that this project began with
SOURCES = 'docs/design/sources.md'
NUMBERED = re.compile(r'\bdesign,? (section \d+[a-z]?)\b'
                      r'|\b([Ss]eed (?:0\d\d|[A-Z][\w-]*[A-Z]))\b')


def headings(text):
    """What a link to a part of a document may say"""
    text = re.sub(r'^```.*?^```', '', text, flags=re.M | re.S)
    for line in re.findall(r'^#+ +(.*)', text, re.M):
        yield re.sub(r'[^\w -]', '', line).replace(' ', '-').lower()


def check_link(tree):
    found = Found()
    known = set(tree.files)
    for path in tree.files:
        known.update(path[:at] for at, c in enumerate(path) if c == '/')

    def is_there(name):
        return name in known or any(fnmatch.fnmatch(path, name)
                                    for path in tree.files)

    for path in tree.files:
        text = '' if path.startswith('test/tidy/') else tree.text(path)
        for name in set(DOCS.findall(text)):
            if not is_there(re.sub(r'[.]$|/$|(?<!\d)\]$', '', name)):
                found.add(path, '%s names %s, which is not there' % (
                    path, name))
        if not path.endswith('.md'):
            continue
        for link in re.findall(r'\]\(([^) \n]+)\)', text):
            name, _, part = link.partition('#')
            target = os.path.normpath(os.path.join(os.path.dirname(path),
                                                   name)) if name else path
            if re.match(r'https?:', link):
                continue
            if not os.path.exists(os.path.join(tree.top, target)):
                found.add(path, '%s: %s leads nowhere' % (path, link))
            elif part and part not in headings(tree.text(target)):
                found.add(path, '%s: %s has no "#%s"' % (path, target, part))
    return found


def check_source(tree):
    """"design, section 4" and "seed NP-RDMA" have a row each in SOURCES"""
    found = Found()
    rows = tree.text(SOURCES) if SOURCES in tree.files else ''
    rows = [row for row in rows.splitlines() if row.startswith('| ')]
    for path in tree.files:
        if path.startswith('test/tidy/'):
            continue
        # across the lines of a comment
        text = re.sub(r'\s*\n[ \t]*[*#/]*[ \t]*', ' ', tree.text(path))
        for section, seed in set(NUMBERED.findall(text)):
            words = section or seed.split()[1]
            if not any(re.search(r'(?<![\w-])%s(?![\w-])' % words, row)
                       for row in rows):
                found.add(path, '%s names %s, which %s does not have' % (
                    path, section or seed, SOURCES))
    return found


# -- what is known

# Kind, what must hold, whether known.txt may have exceptions, how it is checked
CHECKS = [
    ('include', 'includes point down', True, check_include),
    ('circle', 'no circle of files goes across rooms', True, check_circle),
    ('file', 'no file of src is over %d lines' % FILE_LINES, True, check_file),
    ('function', 'no function of src is over %d lines' % FUNCTION_LINES, True,
     check_function),
    ('columns', 'lines have %d columns, in documents %d' % (
        CODE_COLUMNS, TEXT_COLUMNS), True, check_columns),
    ('format', 'the layout is what .clang-format asks for', True,
     check_format),
    ('shellcheck', 'shellcheck says nothing about scripts', False,
     check_shellcheck),
    ('license', 'every file says its license', False, check_license),
    ('variable', 'variables are documented, and those documented are there',
     False, check_variable),
    ('link', 'links and paths of documents lead somewhere', False,
     check_link),
    ('source', 'sections and seeds lead to %s' % SOURCES, False,
     check_source),
]
LISTED = [kind for kind, _, is_listed, _ in CHECKS if is_listed]


class Known:
    """Lines "KIND WORDS [NUMBER]" """

    def __init__(self, text):
        self.lines = text.splitlines()
        self.numbers = {}
        self.mistakes = []
        for at, line in enumerate(self.lines, 1):
            if not line or line.startswith('#'):
                continue
            kind, key, number = self._parse(line)
            if kind not in LISTED or not key or number < 1:
                self.mistakes.append('line %d is not "KIND WORDS NUMBER": %s' %
                                     (at, line))
            elif (kind, key) in self.numbers:
                self.mistakes.append('line %d is there twice: %s' % (at, line))
            else:
                self.numbers[kind, key] = number

    @staticmethod
    def _parse(line):
        words = line.split()
        number = int(words.pop()) if words[-1].isdecimal() else 1
        return words[0] if words else '', ' '.join(words[1:]), number

    def faults(self, kind, found):
        """What is found and not known, or more than is known"""
        for key, (number, lines) in sorted(found.items()):
            known = self.numbers.get((kind, key), 0)
            if number > known:
                if known:
                    yield '%s: %d, and %s has %d:' % (key, number, KNOWN, known)
                yield from lines

    def needless(self, kind, found):
        """What is known and not found, or less than is known"""
        for (its, key), known in sorted(self.numbers.items()):
            number = found[key][0] if key in found else 0
            if its == kind and number < known:
                yield ('%s: "%s %s" is no longer needed' % (KNOWN, kind, key)
                       if number == 0 else '%s: "%s %s %d" is too large: %d' %
                       (KNOWN, kind, key, known, number)) + \
                    ' (tidy.t --shrink)'

    def shrunk(self, kinds):
        """The text with what was found, where that is less. Kinds that were
        not checked stay."""
        text = []
        for line in self.lines:
            if line and not line.startswith('#'):
                kind, key, known = self._parse(line)
                if kind in kinds:
                    number = kinds[kind][key][0] if key in kinds[kind] else 0
                    if number == 0:
                        continue
                    if number < known:
                        line = '%s %s %d' % (kind, key, number)
            text.append(line)
        return ''.join(line + '\n' for line in text)


def look(tree, kind):
    """What one check finds, or the reason why it cannot be made"""
    check = {name: function for name, _, _, function in CHECKS}[kind]
    try:
        return check(tree), None
    except Skip as skip:
        return None, str(skip)


def read_known(top):
    with open(os.path.join(top, KNOWN), encoding='utf-8') as file:
        return Known(file.read())


def shrink(top):
    tree, known, kinds = Tree(top), read_known(top), {}
    for kind in LISTED:
        found, reason = look(tree, kind)
        if reason:
            print('%s: not looked at: %s' % (kind, reason))
        else:
            kinds[kind] = found
    text = known.shrunk(kinds)
    print('%s: %d lines of %d' % (KNOWN, len(text.splitlines()),
                                  len(known.lines)))
    with open(os.path.join(top, KNOWN), 'w', encoding='utf-8') as file:
        file.write(text)


# -- TAP

class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def result(self, name, wrong=(), skip=None):
        wrong = list(wrong)
        self.count += 1
        self.failed += bool(wrong)
        print('%sok %d - %s%s' % ('not ' if wrong else '', self.count, name,
                                  ' # SKIP ' + skip if skip else ''))
        for line in wrong[:100]:
            print('# ' + line)
        if len(wrong) > 100:
            print('# and %d more' % (len(wrong) - 100))
        sys.stdout.flush()


def look_at_all(tap, top):
    tree, known, needless = Tree(top), read_known(top), []
    tap.result('known.txt is well formed', known.mistakes)
    for kind, title, is_listed, _ in CHECKS:
        found, reason = look(tree, kind)
        if reason:
            tap.result(title, skip=reason)
            continue
        tap.result(title, known.faults(kind, found))
        if is_listed:
            needless += known.needless(kind, found)
    tap.result('known.txt has nothing that is no longer needed', needless)


# -- each rule on a small tree, without a fault and with one

TEXT_HEAD = '<!-- ' + SPDX + 'BSD-3-Clause -->\n'
C_HEAD = '/* ' + SPDX + 'BSD-3-Clause */\n'
SHELL_HEAD = '#!/bin/bash\n# ' + SPDX + 'BSD-3-Clause\n'
KERNEL = '#include <linux/module.h>\n'
SMALL = {
    'README.md': TEXT_HEAD + '[NPRDMA_ONE](docs/design/one.md).\n',
    'docs/design/sources.md': TEXT_HEAD + '| seed 000 | NP-RDMA |\n'
                              '| section 4 | [it](one.md#part-1-of-it) |\n',
    'docs/design/one.md': TEXT_HEAD + '## Part 1, of it\n',
    'include/nprdma/api.h': C_HEAD,
    'src/nprdma/np.h': C_HEAD + '#include <nprdma/api.h>\n',
    'src/nprdma/mem/table.h': C_HEAD + '#include "../np.h"\n',
    'src/nprdma/mem/table.c':
        C_HEAD + '#include "table.h"\n\n\nvoid np_table(void)\n{\n'
                 '    first();\n    second();\n}\n',
    'src/nprdma/dev/soft/port.h': C_HEAD + '#include "nprdma/mem/table.h"\n',
    'src/nprdma/proto/move.h': C_HEAD + '#include "../mem/table.h"\n',
    'src/uct/nprdma/ep.c': C_HEAD + '#include <uct/api/uct.h>\n'
                           '#include "nprdma/proto/move.h"\n'
                           '#include "nprdma/dev/soft/port.h"\n',
    'kmod/main.c': '// ' + SPDX + 'GPL-2.0-only\n' + KERNEL +
                   '#include "nprdma/api.h"\n',
    'contrib/run.sh': SHELL_HEAD + 'echo "${NPRDMA_ONE:-none}"\n',
    'docs/results/one.svg': '<svg/>\n',
    REUSE: '# ' + SPDX + 'BSD-3-Clause\n'
           '[[annotations]]\npath = "**"\nSPDX-FileCopyrightText = "us"\n'
           '[[annotations]]\npath = "docs/*/*.svg"\n'
           + SPDX.rstrip(': ') + ' = "BSD-3-Clause"\n',
}


def table(body):
    return {'src/nprdma/mem/table.c':
            SMALL['src/nprdma/mem/table.c'].replace('    first();\n', body)}


def source(path, text):
    return {path: SMALL.get(path, C_HEAD) + text}


def lines_of_file(count):
    text = SMALL['src/nprdma/mem/table.h']
    return {'src/nprdma/mem/table.h':
            text + '\n' * (count - len(text.splitlines()))}


TABLE = 'src/nprdma/mem/table.c'
MOVE_UP = 'src/nprdma/mem/table.h -> src/nprdma/proto/move.h'

# Kind, what the fault is, the files that make it, what is to be found
FAULTS = [
    ('include', 'a file of mem that includes one of proto',
     source('src/nprdma/mem/table.h', '#include "../proto/move.h"\n'),
     {MOVE_UP: 1}),
    ('include', 'a file of proto that includes a device, by its other path',
     source('src/nprdma/proto/move.h',
            ' # include "nprdma/dev/soft/port.h"\n'),
     {'src/nprdma/proto/move.h -> src/nprdma/dev/soft/port.h': 1}),
    ('include', 'a file of the engine that includes UCT',
     source('src/nprdma/np.h', '#include <uct/api/uct.h>\n'),
     {'src/nprdma/np.h -> <uct/api/uct.h>': 1}),
    ('include', 'a source that includes a file of the tests',
     {**source('src/nprdma/np.h', '#include "../../test/tap.h"\n'),
      'test/tap.h': C_HEAD}, {'src/nprdma/np.h -> test/tap.h': 1}),
    ('include', 'a kernel source that includes the engine',
     source('kmod/main.c', '#include "nprdma/np.h"\n'),
     {'kmod/main.c -> src/nprdma/np.h': 1}),
    ('include', 'a room without a rule', source('src/attic/old.c', ''),
     {'src/attic/old.c': 1}),
    ('circle', 'two files of two rooms that include each other',
     source('src/nprdma/mem/table.c', '#include "../proto/move.h"\n'),
     {'src/nprdma/mem/table': 1, 'src/nprdma/proto/move': 1}),
    ('circle', 'two files of one room that do, which is none',
     {**source('src/nprdma/mem/table.h', '#include "page.h"\n'),
      **source('src/nprdma/mem/page.h', '#include "table.h"\n')}, {}),
    ('file', 'a file of 601 lines', lines_of_file(601),
     {'src/nprdma/mem/table.h': 601}),
    ('file', 'one of 600, which may be', lines_of_file(600), {}),
    ('function', 'a function of 61 lines', table('    first();\n' * 57),
     {TABLE + ' np_table': 61}),
    ('function', 'one of 60, which may be', table('    first();\n' * 56), {}),
    ('columns', 'a line of 81 columns',
     table('    first(); ' + 'x' * 68 + '\n'),
     {TABLE: 1}),
    ('columns', 'a line of 81 with tabs, in the kernel',
     source('kmod/main.c', '\t' + 'x' * 73 + '\n'), {'kmod/main.c': 1}),
    ('columns', 'the same with a message, which may be',
     source('kmod/main.c', '\t"' + 'x' * 73 + '",\n'), {}),
    ('columns', 'a line of 121 in a document, beside a row of a table',
     source('README.md', 'x' * 121 + '\n| ' + 'x' * 121 + '\n'),
     {'README.md': 1}),
    ('format', 'a wrong indentation', table('   first(a, b);\n'), {TABLE: 1}),
    ('format', 'a word too close', table('    if(a) {\n        b();\n    }\n'),
     {TABLE: 1}),
    ('format', 'two statements in a line', table('    first(); second();\n'),
     {TABLE: 2}),
    ('format', 'a body without braces, in whichever line',
     table('    if (a)\nb();\n    if (a) b();\n'), {TABLE: 3}),
    ('format', 'what comes after a message with a parenthesis',
     table('    say("one (of");\n   first();\n'), {TABLE: 1}),
    ('format', 'a blank at the end', table('    first(); \n'), {TABLE: 1}),
    ('format', 'how a statement is broken, and its columns, which are free',
     table('    one   = first((char*)1,\n          b) ? c :\n'
           '         d;\n'), {}),
    ('shellcheck', 'a word without quotes in NAME.sh',
     source('contrib/run.sh', 'rm $1\n'), {'contrib/run.sh': 1}),
    ('shellcheck', 'the same in a script that only its first line tells',
     {'contrib/run': SHELL_HEAD + 'rm $1\n'}, {'contrib/run': 1}),
    ('shellcheck', "the same in one of busybox's shell",
     {'contrib/init': '#!/bin/busybox sh\nrm $1\n'}, {'contrib/init': 1}),
    ('license', 'a source without a license', {'src/nprdma/new.c': 'int a;\n'},
     {'src/nprdma/new.c': 1}),
    ('license', 'a script without a license',
     {'contrib/new': '#!/bin/bash\n'}, {'contrib/new': 1}),
    ('license', 'a picture where REUSE.toml gives none a license',
     {'docs/results/more/one.svg': '<svg/>\n'},
     {'docs/results/more/one.svg': 1}),
    ('license', 'kernel code under the license of programs',
     {'kmod/main.c': C_HEAD + KERNEL}, {'kmod/main.c': 1}),
    ('variable', 'a variable of a document that nothing has',
     source('README.md', 'Set `NPRDMA_TWO=1`.\n'), {'NPRDMA_TWO': 1}),
    ('variable', 'a variable of a program that no document has',
     table('    getenv("NPRDMA_TWO");\n'), {'NPRDMA_TWO': 1}),
    ('variable', 'a variable of a script that no document has',
     source('contrib/run.sh', 'echo "${NPRDMA_TWO-no}"\n'), {'NPRDMA_TWO': 1}),
    ('link', 'a link to a document that is not there',
     source('docs/design/one.md', '[two](two.md) [it](../../README.md)\n'),
     {'docs/design/one.md': 1}),
    ('link', 'a link to a part that is not there, beside one of this document',
     source('README.md', '[a](docs/design/one.md#b) [c](#d)\n# d\n'),
     {'README.md': 1}),
    ('link', 'paths of documents in sources and scripts, each one not there',
     {**source('contrib/run.sh', '"$NPRDMA_SRC/docs/two.md" docs/*/*.md\n'),
      **source('src/nprdma/np.h', '/* docs/design/one.md docs/one.md. */\n')},
     {'contrib/run.sh': 1, 'src/nprdma/np.h': 1}),
    ('source', 'a section of the design that nothing explains, in a comment',
     source('src/nprdma/np.h', '/* (design,\n * section 5; section 6) */\n'),
     {'src/nprdma/np.h': 1}),
    ('source', 'seeds by number and by name, of which one is explained',
     source('src/nprdma/np.h', '/* seed 000, seed NP-RDMA, seed FRRWP */\n'),
     {'src/nprdma/np.h': 1}),
]


def make(top, files):
    for path, text in files.items():
        name = os.path.join(top, path)
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, 'w', encoding='utf-8') as file:
            file.write(text)
    return Tree(top)


def small_tree(files):
    """A context: a tree of SMALL and these files"""
    work = tempfile.TemporaryDirectory()
    shutil.copy(os.path.join(TOP, '.clang-format'), work.name)
    make(work.name, {**SMALL, **files})
    return work


def differences(found, wanted):
    got = {key: number for key, (number, _) in found.items()}
    if got != wanted:
        yield 'found %s, wanted %s' % (got, wanted)


def try_rules(tap):
    with small_tree({}) as top:
        tree = Tree(top)
        tap.result('nothing is found where nothing is wrong',
                   [line for kind, _, _, _ in CHECKS
                    for line in differences(look(tree, kind)[0] or {}, {})])
    for kind, title, files, wanted in FAULTS:
        with small_tree(files) as top:
            found, reason = look(Tree(top), kind)
        tap.result('%s: %s' % (kind, title),
                   () if reason else differences(found, wanted), reason)


def try_layout(tap):
    """What is said about a layout names the line of the file, and the cure"""
    with small_tree(table('    first(a,\n          b);\n'
                          '   second(a);\n')) as top:
        found, reason = look(Tree(top), 'format')
    wanted = '%s: 1 lines differ from what clang-format makes, at 9: ' \
        'clang-format %s | diff %s - ' % (TABLE, TABLE, TABLE)
    said = [] if reason else found.get(TABLE, (0, []))[1]
    tap.result('format: the line and the command are said',
               () if reason or any(line.startswith(wanted) for line in said)
               else ['said %s, wanted %s' % (said, wanted)], reason)


def try_known(tap):
    known = Known('# head\ninclude a -> b\nfile c 700\nfile d 650\n')
    more = Found({'c': (701, ['c has 701'])})
    less = Found({'c': (690, []), 'e': (800, [])})

    def same(name, got, wanted):
        tap.result('known.txt: ' + name,
                   [] if got == wanted else ['got %s, wanted %s' %
                                             (got, wanted)])

    same('more than a number is a fault', list(known.faults('file', more)),
         ['c: 701, and %s has 700:' % KNOWN, 'c has 701'])
    same('as much is none', list(known.faults('include',
                                              Found({'a -> b': (1, ['x'])}))),
         [])
    same('what is too large and what is not needed is told',
         [line.split(': ', 1)[1] for line in known.needless('file', less)],
         ['"file c 700" is too large: 690 (tidy.t --shrink)',
          '"file d" is no longer needed (tidy.t --shrink)'])
    same('--shrink lowers, leaves out, adds nothing, and keeps other kinds',
         known.shrunk({'file': less}), '# head\ninclude a -> b\nfile c 690\n')
    same('--shrink never makes a number larger',
         known.shrunk({'file': more}), '# head\ninclude a -> b\nfile c 700\n')
    same('a mistake in it is told',
         [line.split(' is')[0] for line in
          Known('file c 0\nlicense d 1\nfile e 5\nfile e 4\n').mistakes],
         ['line 1', 'line 2', 'line 4'])


def try_without_tools(tap):
    path, os.environ['PATH'] = os.environ['PATH'], '/nowhere'
    with small_tree({}) as top:
        reasons = {kind: look(Tree(top), kind)[1]
                   for kind in ('format', 'shellcheck')}
    os.environ['PATH'] = path
    tap.result('without a tool a check is a skip that names it',
               [kind for kind, tool in (('format', 'clang-format'),
                                        ('shellcheck', 'shellcheck'))
                if not (reasons[kind] or '').startswith(tool + ' is missing')])


def main(arguments):
    if arguments == ['--shrink']:
        shrink(TOP)
        return 0
    if arguments:
        print('Usage: tidy.t [--shrink]', file=sys.stderr)
        return 2
    tap = Tap()
    try_rules(tap)
    try_layout(tap)
    try_known(tap)
    try_without_tools(tap)
    look_at_all(tap, TOP)
    print('1..%d' % tap.count)
    return 1 if tap.failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
