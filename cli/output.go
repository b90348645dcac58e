package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api"
)

// The forms of output, beside the one for people.
const (
	formatJSON = "json"
	formatYAML = "yaml"
	formatWide = "wide"
	formatName = "name"
)

// output gives c the flag -o; the form for people and wide, json, yaml, name or fewer.
func (p *program) output(c *cobra.Command, formats ...string) *cobra.Command {
	last := len(formats) - 1
	allowed := strings.Join(formats[:last], ", ") + " or " + formats[last]
	// Through a Value, so that a wrong word is refused before anything is done.
	c.Flags().VarP(&formatFlag{&p.format, formats, allowed}, "output", "o", "form of the output: "+allowed)
	c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// lists gives c the flag -o of lists, things that of one thing.
func (p *program) lists(c *cobra.Command) *cobra.Command {
	return p.output(c, formatJSON, formatYAML, formatWide, formatName)
}

func (p *program) things(c *cobra.Command) *cobra.Command {
	return p.output(c, formatJSON, formatYAML)
}

type formatFlag struct {
	to      *string
	formats []string
	allowed string
}

func (f *formatFlag) String() string { return "" }
func (f *formatFlag) Type() string   { return "form" }
func (f *formatFlag) Set(text string) error {
	if !slices.Contains(f.formats, text) {
		return fmt.Errorf("it must be %s", f.allowed)
	}
	*f.to = text
	return nil
}

// machine prints v when the user asked for a form for machines, and says whether.
func (p *program) machine(v any) (bool, error) {
	switch p.format {
	case formatJSON:
		return true, p.writeJSON(v, "  ")
	case formatYAML:
		b, err := yaml.Marshal(v)
		if err == nil {
			_, err = p.Out.Write(b)
		}
		return true, err
	}
	return false, nil
}

// writeJSON prints v exactly: the value that kithd sent, in lists that are never null. Without an indent it is one line.
func (p *program) writeJSON(v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := p.Out.Write(asciiEscapes(b.Bytes()))
	return err
}

// printList prints items in the form asked for; none says what to tell people when there are none.
func printList[T any](p *program, items []T, columns []column[T], none string) error {
	if done, err := p.machine(api.List[T](items)); done {
		return err
	}
	if p.format == formatName {
		for _, item := range items {
			fmt.Fprintln(p.Out, clean(columns[0].cell(item)))
		}
		return nil
	}
	if len(items) == 0 {
		fmt.Fprintln(p.Err, none)
		return nil
	}
	writeTable(p.Out, p.style(p.OutTerminal), p.format == formatWide, columns, items)
	return nil
}

// note is a line under a table: what it is about, and a sentence that has no room in it.
type note struct{ about, text string }

// printNotes writes those that say something under a table for people.
func (p *program) printNotes(notes ...note) {
	if p.format != "" && p.format != formatWide {
		return
	}
	for _, n := range notes {
		if n.text != "" {
			fmt.Fprintf(p.Out, "%s: %s\n", clean(n.about), strings.ReplaceAll(cleanLines(n.text), "\n", " "))
		}
	}
}

// pick keeps the items that match one of names, in that order; all of them without names.
func pick[T any](items []T, names []string, match func(T, string) bool, missing func(name string) error) ([]T, error) {
	if len(names) == 0 {
		return items, nil
	}
	var out []T
	for _, name := range names {
		before := len(out)
		for _, item := range items {
			if match(item, name) {
				out = append(out, item)
			}
		}
		if len(out) == before {
			return nil, missing(name)
		}
	}
	return out, nil
}
