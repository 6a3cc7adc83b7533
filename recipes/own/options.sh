# shellcheck shell=bash
# What this recipe adds to run.sh; see local/recipe_options.sh.
# shellcheck disable=SC2034,SC2154  # the other variables are run.sh's

# begin options
unit=phone          # phone (English), lexicon: the units of --lexicon, or bpe: BPE tokens, which need none
lexicon=            # file of pronunciations, lines 'word unit unit ...' (default: cmudict alone)
unknown_words=skip  # texts with words that cannot be read: skip them, or stop with a list of the words
g2p=                # language (en-us, de, ...) by whose rules espeak-ng reads words in no lexicon
g2p_table=          # file of units for espeak-ng's sounds, lines 'symbol unit unit ...', with --unit lexicon
init=               # model folder that training begins from, and whose units are taken (default: a flat start)
vocab_size=         # BPE tokens with --unit bpe (default: 200)
# end options

systems=ml-vae-sub  # it has a judge, which recordings of people need
corpus_may_be_file=true

check_recipe_options() {
  corpus=${corpus:-own}
  [[ -n $corpus_dir || $stage != 0 ]] ||
    usage_error "recipe own needs --corpus-dir: a folder of recordings and texts, a table, a Kaldi data directory or a manifest of cuts"
  [[ -z $split && -z $num_utterances ]] ||
    usage_error "recipe own takes all recordings and splits them by itself: no --split, no --num-utterances"
  [[ $unit =~ ^(phone|lexicon|bpe)$ ]] || usage_error "--unit must be phone, lexicon or bpe, not '$unit'"
  [[ $unknown_words =~ ^(stop|skip)$ ]] ||
    usage_error "--unknown-words must be stop or skip, not '$unknown_words'"
  [[ -z $lexicon || -f $lexicon ]] || usage_error "--lexicon $lexicon is not a file"
  [[ -z $lexicon || $unit != bpe ]] || usage_error "--unit bpe needs no --lexicon"
  [[ -n $lexicon || -n $g2p || -n $init || $unit != lexicon || $stage != 0 ]] ||
    usage_error "--unit lexicon goes with --lexicon FILE, --g2p LANGUAGE or --init MODEL"
  [[ -z $g2p || $unit != bpe ]] || usage_error "--unit bpe needs no --g2p"
  [[ -z $g2p_table || -n $g2p && $unit == lexicon ]] ||
    usage_error "--g2p-table goes with --g2p LANGUAGE and --unit lexicon"
  [[ -z $init || -f $init/model.json ]] || usage_error "--init $init is no model folder: it has no model.json"
  [[ -z $init || -z $vocab_size ]] || usage_error "--init brings its BPE tokens: no --vocab-size"
  [[ -z $g2p_table || -f $g2p_table ]] || usage_error "--g2p-table $g2p_table is not a file"
  [[ -z $vocab_size || $vocab_size =~ ^[1-9][0-9]{0,8}$ ]] ||
    usage_error "--vocab-size must be a positive number of at most 9 digits, not '$vocab_size'"
  [[ -z $vocab_size || $unit == bpe ]] || usage_error "--vocab-size goes with --unit bpe"

  # Units lie side by side.
  corpus_name=$corpus
  [[ $unit == phone ]] || corpus_name+=-$unit
  prepare_options=(--unit "$unit" --unknown-words "$unknown_words")
  [[ -z $lexicon ]] || prepare_options+=(--lexicon "$lexicon")
  [[ -z $g2p ]] || prepare_options+=(--g2p "$g2p")
  [[ -z $g2p_table ]] || prepare_options+=(--g2p-table "$g2p_table")
  [[ $allow_commands == false ]] || prepare_options+=(--allow-commands true)
  [[ -z $init ]] || init_options=(--init "$init")
  [[ -z $init ]] || prepare_options+=(--init "$init")
  [[ -z $vocab_size ]] || units_options=(--vocab-size "$vocab_size")
}
