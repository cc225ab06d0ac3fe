//! Text of an SVG file: what is escaped, and how wide a text is about.

use std::fmt::{self, Display, Write};

/// Text as XML content or attribute: markup is escaped, and what XML 1.0 forbids is replaced.
pub(super) struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}'),
            char if char.is_control() => f.write_char('\u{fffd}'),
            char => f.write_char(char),
        })
    }
}

/// About how wide a text is, in pixels at this font size; fonts differ, so this errs upwards.
pub(super) fn width(text: &str, font_px: f64) -> f64 {
    // East Asian wide characters take a whole em.
    let em = |char: char| if char >= '\u{1100}' { 1.0 } else { 0.58 };
    text.chars().map(em).sum::<f64>() * font_px
}

/// The text, or its beginning and an ellipsis if it is wider than `limit` pixels.
pub(super) fn fit(text: &str, font_px: f64, limit: f64) -> String {
    if width(text, font_px) <= limit {
        return text.to_owned();
    }
    let mut short = String::new();
    for char in text.chars() {
        short.push(char);
        if width(&short, font_px) + font_px > limit {
            break;
        }
    }
    short.pop();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_forbidden_characters_do_no_harm() {
        let text = Escaped("a<b>&\"c'\u{0}\u{1b}\u{ffff}é").to_string();
        assert_eq!(text, "a&lt;b&gt;&amp;&quot;c&#39;\u{fffd}\u{fffd}\u{fffd}é");
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(fit("short", 10.0, 100.0), "short");
        let cut = fit(&"long ".repeat(100), 10.0, 100.0);
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 100.0, "{cut}");
    }
}
