//! Width and wrapping of text in a picture. Fonts differ, so the estimate is on the large side.

pub(super) fn width(text: &str, size: f64) -> f64 {
    let of = |letter: char| match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.34,
        ' ' | '(' | ')' | 'f' | 't' | 'r' | '-' | '/' => 0.44,
        'm' | 'w' | 'M' | 'W' | '%' => 0.98,
        letter if letter.is_uppercase() => 0.72,
        _ => 0.63,
    };
    text.chars().map(of).sum::<f64>() * size
}

/// Breaks text at blanks into lines that fit; a word that does not fit stands alone.
pub(super) fn wrapped(text: &str, room: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => {
                *line += &format!(" {word}")
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            letter => safe.push(letter),
        }
    }
    safe
}
