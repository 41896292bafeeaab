"""`statehold completion`: the scripts with which a shell completes words; call/completion.py finds the words."""

from __future__ import annotations

from ..server.exit_codes import OK, USAGE
from ..server.printing import complain, write

SCRIPTS = {
    "bash": """\
_statehold() {
    local IFS=$'\\n' words=() typed=${COMP_WORDS[COMP_CWORD]} word
    local last=${typed//[\\\\\\'\\"]/}
    mapfile -t words < <(statehold complete -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$last" 2>/dev/null)
    COMPREPLY=()
    for word in "${words[@]}"; do
        # Behind an opening quote, only words that need no quoting there.
        case $typed in
            \\'*) [[ $word == *\\'* ]] || COMPREPLY+=("$word") ;;
            \\"*) [[ $word == *[\\"\\$\\`\\\\!]* ]] || COMPREPLY+=("$word") ;;
            *) COMPREPLY+=("$(printf '%q' "$word")") ;;
        esac
    done
    [[ ${#words[@]} == 1 && ${words[0]} == *= ]] && compopt -o nospace
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}
COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}
complete -o default -F _statehold statehold
""",
    "zsh": """\
#compdef statehold
_statehold() {
    local -a found
    found=("${(@f)$(statehold complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    if [[ -n $found[1] ]]; then
        compadd -S '' -- "${(@M)found:#*=}"
        compadd -- "${(@)found:#*=}"
    else
        compset -P '*=@'
        _files
    fi
}
compdef _statehold statehold
""",
    "fish": """\
function __statehold
    set -l words (commandline -opc) (commandline -ct)
    set -l found (statehold complete -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c statehold -f -a '(__statehold)'
""",
}


def show_script(shell: str) -> int:
    """Print the script of a shell. Return the exit code."""
    script = SCRIPTS.get(shell)
    if script is None:
        return complain(
            f"there is no completion for {shell}; there is one for {', '.join(SCRIPTS)}", USAGE
        )
    write(script)
    return OK
