//! Tests of help, man pages and completions.

use crate::rig::Rig;

#[test]
fn pages_and_completions_are_without_fault_and_help_fits_the_terminal() {
    Rig::new().run(
        r#"$LAB man pages; for page in pages/*; do groff -ww -man -Tutf8 -z $page 2>>warned; done
           [ ! -s warned ] || { cat warned >&2; exit 1; }
           groff -man -Tutf8 pages/okeanos-lab-bench-streams.1 |
               sed 's/\x1b\[[0-9;]*m//g;s/.\x08//g' >page
           grep -q 'okeanos-lab bench streams .*' page; grep -q '^EXIT STATUS' page
           for shell in bash zsh fish; do
               $LAB completions $shell >script.$shell; grep -q reproduce script.$shell
           done
           bash -n script.bash
           for width in 60 80 100; do
               for command in "" bench "bench streams" "bench replay" sim fingerprint nbd disk \
                   "disk serve" reproduce; do
                   COLUMNS=$width $LAB $command --help >help
                   # A word, or a line that is to be typed, may be wider.
                   awk -v w=$width 'length > w && !/^ *[^ ]+$/ && !/okeanos|--|<.*>|\// { print; bad = 1 } END { exit bad }' help
               done
           done
           $LAB sim --help >help; grep -q wrapping-4k help; grep -q flush-hang help
           $LAB fingerprint --help >help; grep -q cheetah help
           $LAB --version | grep -q '^okeanos-lab [0-9]'"#,
    );
}
