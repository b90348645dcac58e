package screen

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Column is one column of a table of T.
type Column[T any] struct {
	Title string
	Cell  func(T) string // what it gives is cleaned; "" is shown as -
	Wide  bool           // only with -o wide
	Need  bool           // left out when it is empty in every row; with -o wide only if it is Wide, too
}

// Table writes rows under titles. Widths are counted without colours, so those do not push columns apart.
func Table[T any](w io.Writer, s Style, wide bool, columns []Column[T], rows []T) {
	var titles []string
	var cells [][]string
	for _, c := range columns {
		if c.Wide && !wide {
			continue
		}
		column, filled := make([]string, len(rows)), false
		for i, row := range rows {
			column[i] = Clean(c.Cell(row))
			filled = filled || column[i] != ""
		}
		if c.Need && !filled && (!wide || c.Wide) {
			continue
		}
		titles, cells = append(titles, c.Title), append(cells, column)
	}
	widths := make([]int, len(titles))
	for i, title := range titles {
		widths[i] = Width(title)
		for _, cell := range cells[i] {
			widths[i] = max(widths[i], Width(cell), 1)
		}
	}
	line := func(cell func(i int) (text, shown string)) {
		var b strings.Builder
		for i := range titles {
			text, shown := cell(i)
			b.WriteString(shown)
			if i < len(titles)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-Width(text)+3))
			}
		}
		fmt.Fprintln(w, b.String())
	}
	line(func(i int) (string, string) { return titles[i], s.Bold(titles[i]) })
	for row := range rows {
		line(func(i int) (string, string) {
			text := cmp.Or(cells[i][row], "-")
			return text, s.Word(text)
		})
	}
}

// Width is how many columns of a terminal text takes, near enough: marks take none, East Asian letters two.
func Width(text string) int {
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
