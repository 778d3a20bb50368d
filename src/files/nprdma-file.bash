# SPDX-License-Identifier: BSD-3-Clause
# Completion of nprdma-file and nprdma-filed for bash.
# shellcheck shell=bash disable=SC2207

_nprdma_file_options() { # of a program, as its help has them
    "$1" --help 2>/dev/null | grep -oE -- '(^|[ ,])--?[a-zA-Z][a-z-]*' |
        tr -d ' ,'
}

# Paths of a server: its list of the directory that has been typed. What a name
# has in it is nobody's command: no word list, which bash would expand.
_nprdma_file_remote() {
    local word=$1 dir name

    dir=${word%"${word##*[:/]}"}
    while IFS= read -r name; do
        name=${dir#*:}$name
        [[ $name != "${word#*:}"* ]] || COMPREPLY+=("$name")
    done < <(timeout 2 nprdma-file --wait 0 --quiet ls "$dir" 2>/dev/null)
}

_nprdma_file() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local commands='ls stat cat get put append mv rm mkdir log bench'
    local word has=no

    case $prev in
    -t | --token | -s | --socket | --munge-socket)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    -a | --auth)
        COMPREPLY=($(compgen -W 'token munge' -- "$cur"))
        return
        ;;
    -p | --port | -w | --wait) return ;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD - 1}"; do
        [[ " $commands " != *" $word "* ]] || has=yes
    done
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(_nprdma_file_options nprdma-file)" -- \
            "$cur"))
    elif [ "$prev" = log ]; then
        COMPREPLY=($(compgen -W 'append cat check' -- "$cur"))
    elif [ "$has" = no ]; then
        COMPREPLY=($(compgen -W "$commands" -- "$cur"))
    elif [[ $COMP_LINE =~ [^[:space:]]*:[^[:space:]]*$ ]]; then
        # readline has taken the word apart at its colon
        COMPREPLY=()
        _nprdma_file_remote "${BASH_REMATCH[0]}"
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}

_nprdma_filed() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}

    if [[ $prev == -a || $prev == --auth ]]; then
        COMPREPLY=($(compgen -W 'token munge' -- "$cur"))
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$(_nprdma_file_options nprdma-filed)" -- \
            "$cur"))
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}

complete -o filenames -F _nprdma_file nprdma-file
complete -o filenames -F _nprdma_filed nprdma-filed
