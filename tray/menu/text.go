package menu

import "strings"

// Text writes the menu as lines: "> " before what can be clicked, boxes and circles before what can be chosen.
func Text(items []Item) string {
	var b strings.Builder
	for _, i := range items {
		if i.Separator() {
			b.WriteString("---\n")
			continue
		}
		lead := "> "
		if i.Disabled {
			lead = "  "
		}
		b.WriteString(lead + marks[i.Mark][i.On] + i.Label + "\n")
	}
	return b.String()
}

var marks = map[Mark]map[bool]string{
	NoMark: {},
	Check:  {false: "[ ] ", true: "[x] "},
	Radio:  {false: "( ) ", true: "(o) "},
}
