# The sizes of writes of some log traces as one picture: for each size, what share of the writes is
# no larger. Input: the records of all traces, each line begun with its trace's name and a comma.

BEGIN {
    FS = ","
    LEFT = 60; TOP = 20; WIDTH = 560; HEIGHT = 260
    SMALLEST = 512; DOUBLINGS = 10
    split("#0072b2 #d55e00 #009e73 #cc79a7 #000000", colour, " ")
}

$4 > 0 {
    if (!($1 in writes)) name[++names] = $1
    writes[$1]++
    # To the next sixteenth of a doubling; more would not be seen.
    step = int(log($4 / SMALLEST) / log(2) * 16 + 0.999)
    many[$1, step < 0 ? 0 : step]++
}

END {
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", \
        LEFT + WIDTH + 30, TOP + HEIGHT + 50
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    for (doubling = 0; doubling <= DOUBLINGS; doubling++) {
        size = SMALLEST * 2 ^ doubling
        line(x(doubling * 16), TOP, x(doubling * 16), TOP + HEIGHT)
        text(x(doubling * 16), TOP + HEIGHT + 16, "middle", size < 1024 ? size " B" : size / 1024 " KiB")
    }
    for (share = 0; share <= 4; share++) {
        line(LEFT, y(share / 4), LEFT + WIDTH, y(share / 4))
        text(LEFT - 6, y(share / 4) + 4, "end", share * 25 " %")
    }
    text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "middle", "writes of at most this size")
    for (at = 1; at <= names; at++) {
        below = 0
        points = ""
        for (step = 0; step <= DOUBLINGS * 16; step++) {
            if (!many[name[at], step] && step < DOUBLINGS * 16) continue
            points = points sprintf("%.1f,%.1f ", x(step), y(below / writes[name[at]]))
            below += many[name[at], step]
            points = points sprintf("%.1f,%.1f ", x(step), y(below / writes[name[at]]))
        }
        printf "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"%s\"/>\n", colour[at], points
        printf "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", LEFT + WIDTH - 120, y(0.45) + at * 18, colour[at], \
            name[at]
    }
    print "</svg>"
}

function x(step) { return LEFT + WIDTH * step / (DOUBLINGS * 16) }
function y(share) { return TOP + HEIGHT * (1 - share) }
function line(from_x, from_y, to_x, to_y) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", from_x, from_y, to_x, to_y
}
function text(at_x, at_y, anchor, words) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", at_x, at_y, anchor, words
}
