_statehold() {
    local IFS=$'\n' words=() typed=${COMP_WORDS[COMP_CWORD]} word
    local last=${typed//[\\\'\"]/}
    mapfile -t words < <(statehold complete -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$last" 2>/dev/null)
    COMPREPLY=()
    for word in "${words[@]}"; do
        # Behind an opening quote, only words that need no quoting there.
        case $typed in
            \'*) [[ $word == *\'* ]] || COMPREPLY+=("$word") ;;
            \"*) [[ $word == *[\"\$\`\\!]* ]] || COMPREPLY+=("$word") ;;
            *) COMPREPLY+=("$(printf '%q' "$word")") ;;
        esac
    done
    [[ ${#words[@]} == 1 && ${words[0]} == *= ]] && compopt -o nospace
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=/}
COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}
complete -o default -F _statehold statehold
