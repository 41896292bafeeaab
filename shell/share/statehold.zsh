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
if [[ $funcstack[1] == _statehold ]]; then
    # compinit found this file by its first line, and runs it for the first completion.
    _statehold "$@"
else
    compdef _statehold statehold
fi
