package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// column is one column of a table of T.
type column[T any] struct {
	title string
	cell  func(T) string // what it gives is cleaned; "" is shown as -
	wide  bool           // only with -o wide
	need  bool           // left out when it is empty in every row, unless -o wide
}

// writeTable writes rows under titles. Widths are counted without colours, so those do not push columns apart.
func writeTable[T any](w io.Writer, s style, wide bool, columns []column[T], rows []T) {
	var titles []string
	var cells [][]string
	for _, c := range columns {
		if c.wide && !wide {
			continue
		}
		column, filled := make([]string, len(rows)), false
		for i, row := range rows {
			column[i] = clean(c.cell(row))
			filled = filled || column[i] != ""
		}
		if c.need && !filled && !wide {
			continue
		}
		titles, cells = append(titles, c.title), append(cells, column)
	}
	widths := make([]int, len(titles))
	for i, title := range titles {
		widths[i] = width(title)
		for _, cell := range cells[i] {
			widths[i] = max(widths[i], width(cell), 1)
		}
	}
	line := func(cell func(i int) (text, shown string)) {
		var b strings.Builder
		for i := range titles {
			text, shown := cell(i)
			b.WriteString(shown)
			if i < len(titles)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-width(text)+3))
			}
		}
		fmt.Fprintln(w, b.String())
	}
	line(func(i int) (string, string) { return titles[i], s.bold(titles[i]) })
	for row := range rows {
		line(func(i int) (string, string) {
			text := cells[i][row]
			if text == "" {
				text = "-"
			}
			return text, s.word(text)
		})
	}
}

// width is how many columns of a terminal text takes, near enough: marks take none, East Asian letters two.
func width(text string) int {
	n := utf8.RuneCountInString(text)
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
			n--
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r >= 0x1F300 && r <= 0x1FAFF:
			n++
		}
	}
	return n
}
