// SPDX-License-Identifier: BSD-3-Clause
// Memory to which something happens between two transfers, and what it holds
// then.
#include "paging_scene.h"

#include "../harness/swap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace nt {

static constexpr uint64_t ZERO = Image::ZERO;

static Failed failed(const std::string &what)
{
    return Failed(what + ": " + strerror(errno));
}

std::string Image::diff(const uint8_t *data, size_t offset,
                        size_t length) const
{
    std::string text;

    for (size_t done = 0, part; (done < length) && text.empty();
         done += part) {
        size_t at     = offset + done;
        uint64_t seed = seeds[at / PAGE];

        part = std::min(PAGE - at % PAGE, length - done);
        if ((seed == ZERO) ||
            (is_loose && zero_diff(data + done, part).empty())) {
            text = zero_diff(data + done, part);
        } else {
            text = pattern_diff(data + done, part, seed, at);
        }
        if (!text.empty()) {
            text = "page " + std::to_string(at / PAGE) + ", " + text;
        }
    }
    return text;
}

File::File(size_t length)
{
    const char *dir  = getenv("TMPDIR");
    std::string name = std::string((dir == nullptr) ? "/tmp" : dir) +
                       "/nprdma-test.XXXXXX";

    m_fd = mkostemp(&name[0], O_CLOEXEC);
    if ((m_fd < 0) || (unlink(name.c_str()) != 0) ||
        (ftruncate(m_fd, length) != 0)) {
        throw failed("a file like " + name);
    }
}

File::~File()
{
    close(m_fd);
}

void File::write(const std::vector<uint8_t> &bytes) const
{
    if (pwrite(m_fd, bytes.data(), bytes.size(), 0) !=
        (ssize_t)bytes.size()) {
        throw failed("pwrite");
    }
}

std::vector<uint8_t> File::read(size_t length) const
{
    std::vector<uint8_t> bytes(length);

    if (pread(m_fd, bytes.data(), length, 0) != (ssize_t)length) {
        throw failed("pread");
    }
    return bytes;
}

Scene::Scene(bool is_file) : file(PAGES * PAGE), area(PAGES * PAGE)
{
    if (is_file) {
        area.map_again(MAP_SHARED, file.fd());
    }
    fill(1);
}

void Scene::fill(uint64_t seed)
{
    image.seeds.assign(PAGES, seed);
    pattern_fill(area.at(), area.length(), seed);
}

void Scene::becomes(size_t first, size_t end, uint64_t seed)
{
    std::fill(&image.seeds[first], &image.seeds[end], seed);
}

namespace {

void nothing(Scene&)
{
}

void throw_odd_pages(Scene &scene)
{
    for (size_t i = 1; i < Scene::PAGES; i += 2) {
        scene.area.advise(i * PAGE, PAGE, MADV_DONTNEED);
        scene.becomes(i, i + 1, ZERO);
    }
}

void throw_all(Scene &scene)
{
    scene.area.advise(0, scene.area.length(), MADV_DONTNEED);
    scene.becomes(0, Scene::PAGES, ZERO);
}

// The kernel takes the first half at once, the others when it likes.
void set_free(Scene &scene)
{
    scene.area.advise(0, scene.area.length(), MADV_FREE);
    madvise(scene.area.at(), scene.area.length() / 2, MADV_PAGEOUT);
    scene.image.is_loose = true;
}

void swap_out(Scene &scene)
{
    page_out(scene.area.at(), scene.area.length());
}

// Where nothing was mapped for peers there is nothing to find.
void expect_scanned(const Scene &scene)
{
    int64_t found = nprdma_scan(scene.area.at(), scene.area.length());

    EXPECT_GE(found, 0);
    if (counts_faults()) {
        EXPECT_GT(found, 0);
    }
}

void map_anew(Scene &scene)
{
    scene.area.map_again(MAP_PRIVATE | MAP_ANONYMOUS);
    scene.fill(2);
}

// The second half goes to the place of the first one.
void move_half(Scene &scene)
{
    size_t half = scene.area.length() / 2;

    scene.fill(3);
    if (mremap(scene.area.at(half), half, half, MREMAP_MAYMOVE | MREMAP_FIXED,
               scene.area.at(0)) != scene.area.at(0)) {
        throw failed("mremap");
    }
    scene.area.map_again(half, half, MAP_PRIVATE | MAP_ANONYMOUS);
    pattern_fill(scene.area.at(0), half, 4); // at its new place
    scene.becomes(0, Scene::PAGES / 2, 4);
    scene.becomes(Scene::PAGES / 2, Scene::PAGES, ZERO);
}

// The same, and nobody touches what was moved.
void move_half_untouched(Scene &scene)
{
    size_t half = scene.area.length() / 2;

    pattern_fill(scene.area.at(half), half, 5, 0);
    if (mremap(scene.area.at(half), half, half, MREMAP_MAYMOVE | MREMAP_FIXED,
               scene.area.at(0)) != scene.area.at(0)) {
        throw failed("mremap");
    }
    scene.area.map_again(half, half, MAP_PRIVATE | MAP_ANONYMOUS);
    scene.becomes(0, Scene::PAGES / 2, 5);
    scene.becomes(Scene::PAGES / 2, Scene::PAGES, ZERO);
}

void protect_and_back(Scene &scene)
{
    scene.area.protect(0, scene.area.length(), PROT_READ);
    scene.area.protect(0, scene.area.length(), PROT_READ | PROT_WRITE);
}

// A child that has all pages too, until told to look at them: it must find
// what was there before.
void fork_reader(Scene &scene)
{
    int fds[2];

    if (pipe(fds) != 0) {
        throw failed("pipe");
    }
    scene.child = fork();
    if (scene.child == 0) {
        char byte;
        close(fds[1]);
        bool is_told = read(fds[0], &byte, 1) == 1;
        _exit(!is_told || !scene.image.diff(scene.area.at(), 0,
                                            scene.area.length()).empty());
    }
    close(fds[0]);
    scene.to_child = fds[1];
}

void expect_child_unharmed(Scene &scene)
{
    int status = -1;

    EXPECT_EQ(1, write(scene.to_child, "x", 1));
    close(scene.to_child);
    waitpid(scene.child, &status, 0);
    EXPECT_EQ(0, status) << "the child has found other data";
}

// A child that writes into its copies of all pages, and ends.
void fork_writer(Scene &scene)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        memset(scene.area.at(), 0x77, scene.area.length());
        _exit(0);
    }
    waitpid(child, &status, 0);
    EXPECT_EQ(0, status);
}

// The child keeps its copies, and the parent has written to its own: those are
// other frames now.
void fork_and_write(Scene &scene)
{
    fork_reader(scene);
    pattern_fill(scene.area.at(), scene.area.length() / 2, 6);
    // The child's copy of the image is the old one
    scene.becomes(0, Scene::PAGES / 2, 6);
}

void punch(Scene &scene)
{
    size_t first = Scene::PAGES / 4, count = Scene::PAGES / 2;

    if (fallocate(scene.file.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  first * PAGE, count * PAGE) != 0) {
        throw Skipped(std::string("FALLOC_FL_PUNCH_HOLE: ") + strerror(errno));
    }
    scene.becomes(first, first + count, ZERO);
}

// A memfd instead of the area's file system file, with a hole.
void punch_memfd(Scene &scene)
{
    size_t first = Scene::PAGES / 4, count = Scene::PAGES / 2;
    int fd = memfd_create("test", MFD_CLOEXEC);

    if ((fd < 0) || (ftruncate(fd, scene.area.length()) != 0)) {
        throw failed("memfd_create");
    }
    scene.area.map_again(MAP_SHARED, fd);
    scene.fill(7);
    scene.tell();
    // Mapped by the next line, and taken away by the one after it
    EXPECT_EQ(0, nprdma_prefetch(scene.area.at(), scene.area.length(),
                                 NPRDMA_PREFETCH_WRITE));
    EXPECT_EQ(0, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           first * PAGE, count * PAGE));
    close(fd);
    scene.becomes(first, first + count, ZERO);
}

void write_file(Scene &scene)
{
    std::vector<uint8_t> bytes(scene.area.length());

    pattern_fill(bytes.data(), bytes.size(), 8);
    scene.file.write(bytes);
    scene.becomes(0, Scene::PAGES, 8);
}

void expect_file_like_memory(Scene &scene)
{
    EXPECT_EQ(0, memcmp(scene.file.read(scene.area.length()).data(),
                        scene.area.at(), scene.area.length()));
}

void map_file_private(Scene &scene)
{
    write_file(scene);
    scene.area.map_again(MAP_PRIVATE, scene.file.fd());
}

void expect_file_unharmed(Scene &scene)
{
    std::vector<uint8_t> bytes = scene.file.read(scene.area.length());

    EXPECT_EQ("", pattern_diff(bytes.data(), bytes.size(), 8));
}

void map_file_read_only(Scene &scene)
{
    write_file(scene);
    if (mmap(scene.area.at(), scene.area.length(), PROT_READ,
             MAP_SHARED | MAP_FIXED, scene.file.fd(), 0) != scene.area.at()) {
        throw failed("mmap");
    }
}

void protect_read_only(Scene &scene)
{
    scene.area.protect(0, scene.area.length(), PROT_READ);
}

template<void (*HAPPEN)(Scene&)>
void told(Scene &scene)
{
    HAPPEN(scene);
    scene.tell();
}

template<void (*HAPPEN)(Scene&)>
void scanned(Scene &scene)
{
    HAPPEN(scene);
    expect_scanned(scene);
}

// Untold, the kernel itself brings pages back under process_vm_*: nothing is
// to be asked for, and the data must be right all the same.
} // namespace

const std::vector<Event> EVENTS = {
    {"Nothing", false, false, nothing, nullptr},
    {"Told", false, true, told<nothing>, nullptr},
    {"ThrownAway", false, true, told<throw_all>, nullptr},
    {"ThrownAwayUntold", false, false, throw_all, nullptr},
    {"OddPagesThrownAway", false, true, scanned<throw_odd_pages>, nullptr},
    {"Freed", false, true, told<set_free>, nullptr},
    {"FreedUntold", false, false, set_free, nullptr},
    {"Swapped", false, true, scanned<swap_out>, nullptr, false, true},
    {"SwappedUntold", false, false, swap_out, nullptr, false, true},
    {"MappedAnew", false, true, told<map_anew>, nullptr},
    {"MappedAnewUntold", false, false, map_anew, nullptr},
    {"Moved", false, true, told<move_half_untouched>, nullptr},
    {"MovedUntold", false, false, move_half_untouched, nullptr},
    {"MovedAndWritten", false, true, told<move_half>, nullptr},
    {"ProtectedAndBack", false, true, told<protect_and_back>, nullptr},
    {"ProtectedAndBackUntold", false, false, protect_and_back, nullptr},
    {"Forked", false, true, told<fork_reader>, expect_child_unharmed},
    {"ForkedUntold", false, false, fork_reader, expect_child_unharmed},
    {"ChildWrote", false, true, told<fork_writer>, nullptr},
    {"ChildWroteUntold", false, false, fork_writer, nullptr},
    {"ParentWrote", false, true, told<fork_and_write>, expect_child_unharmed},
    {"ParentWroteUntold", false, false, fork_and_write,
     expect_child_unharmed},
    {"FileTold", true, true, told<nothing>, expect_file_like_memory},
    {"FileWritten", true, true, told<write_file>, expect_file_like_memory},
    {"FileWrittenUntold", true, false, write_file, expect_file_like_memory},
    {"HoleInFile", true, true, told<punch>, expect_file_like_memory},
    {"HoleInFileUntold", true, false, punch, expect_file_like_memory},
    {"HoleInMemfd", false, true, told<punch_memfd>, nullptr},
    {"HoleInMemfdScanned", false, true, scanned<punch_memfd>, nullptr},
    {"HoleInMemfdUntold", false, false, punch_memfd, nullptr},
    {"PrivateFile", false, true, told<map_file_private>, expect_file_unharmed},
    {"PrivateFileUntold", false, false, map_file_private,
     expect_file_unharmed},
    {"ReadOnlyFile", false, true, told<map_file_read_only>, nullptr, true},
    {"ReadOnly", false, true, told<protect_read_only>, nullptr, true},
    {"ReadOnlyUntold", false, false, protect_read_only, nullptr, true},
};

} // namespace nt
