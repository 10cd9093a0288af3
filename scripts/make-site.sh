#!/usr/bin/env bash
# Builds the pages as a site with mdBook, and checks their links.
#
#   scripts/make-site.sh MDBOOK
#
# The pages keep their places, so that links between them are right in the repository and in the
# book. docs/SUMMARY.md is the table of contents. Output: target/site.
set -euo pipefail

MDBOOK=${1:?}
SOURCE=target/site-src

fail() {
    echo "make-site: $1" >&2
    exit 1
}

rm -rf "$SOURCE" target/site
mkdir -p "$SOURCE"
git ls-files -z '*.md' 'docs/*' 'LICENSE-*' | grep -zv '^\(crates\|golden\|fuzz\)/' |
    xargs -0 cp --parents -t "$SOURCE"
rm "$SOURCE/docs/SUMMARY.md"
sed 's|](|](docs/|; s|](docs/\.\./|](|' docs/SUMMARY.md >"$SOURCE/SUMMARY.md"

# mdBook makes index.html of a README.md, but does not follow links to it.
find "$SOURCE" -name '*.md' ! -name SUMMARY.md -exec sed -i 's|](\([^):]*/\)\?README\.md|](\1index.md|g' {} +

# mdBook leaves a page out that the table of contents does not list.
(cd "$SOURCE" && find . -name '*.md' ! -name SUMMARY.md -printf '%P\n') | sort |
    while read -r page; do
        grep -qF "]($page)" "$SOURCE/SUMMARY.md" || fail "docs/SUMMARY.md does not list $page"
    done
"$MDBOOK" build
python3 - target/site <<'CHECK'
import html.parser, os, sys, urllib.parse

class Page(html.parser.HTMLParser):
    """The names of a page and its links."""
    def __init__(self, path):
        super().__init__()
        self.names, self.links = set(), []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("id", "name"):
                self.names.add(value)
            elif key in ("href", "src", "srcset") and value:
                self.links.append(value)

root, pages, missing = sys.argv[1], {}, []
for folder, _, files in os.walk(root):
    for name in files:
        # The page for printing has every page's links, relative to another place.
        if name.endswith(".html") and name not in ("print.html", "404.html"):
            path = os.path.normpath(os.path.join(folder, name))
            pages[path] = Page(path)
for path, page in pages.items():
    for link in page.links:
        place = urllib.parse.urlsplit(link)
        if place.scheme or place.netloc:
            continue
        target = urllib.parse.unquote(place.path)
        target = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(target):
            missing.append(f"{path}: {link}")
        elif place.fragment and target in pages and place.fragment not in pages[target].names:
            missing.append(f"{path}: {link}: no such heading")
if missing:
    sys.exit("make-site: broken links:\n" + "\n".join(sorted(set(missing))))
print(f"{root}: {len(pages)} pages, all links lead somewhere")
CHECK
