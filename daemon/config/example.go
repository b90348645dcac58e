package config

import (
	"fmt"
	"strings"
)

// Example is a configuration file in which every key stands with its default, commented out.
func Example() string {
	var b strings.Builder
	b.WriteString("# Configuration of kithd. Every key may be left out; what stands here are the defaults.\n# See kith.yaml(5).\n")
	section := ""
	for _, k := range keys {
		name, indent := k.Name, ""
		if s, rest, nested := strings.Cut(k.Name, "."); nested {
			if name, indent = rest, "  "; s != section {
				fmt.Fprintf(&b, "\n#%s:\n", s)
			}
			section = s
		} else {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "# %s%s. Allowed: %s.\n#%s%s: %s\n", indent, upper(k.Help), k.Allowed, indent, name, k.example())
	}
	return b.String()
}

// example is the default as YAML, or what it follows from, as a comment.
func (k Key) example() string {
	switch {
	case k.List:
		return "[" + strings.ReplaceAll(k.Default, ",", ", ") + "]"
	case k.Follows:
		return "# " + k.Default
	case k.Bool, k.Number:
		return k.Default
	}
	return fmt.Sprintf("%q", k.Default)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
