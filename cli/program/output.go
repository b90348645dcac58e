package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// The forms of output, beside the one for people.
const (
	JSON = "json"
	YAML = "yaml"
	Wide = "wide"
	Name = "name"
)

// Lists gives c the flag -o of a list.
func (p *Program) Lists(c *cobra.Command) *cobra.Command {
	return p.output(c, JSON, YAML, Wide, Name)
}

// Things gives c the flag -o of one thing.
func (p *Program) Things(c *cobra.Command) *cobra.Command {
	return p.output(c, JSON, YAML)
}

func (p *Program) output(c *cobra.Command, formats ...string) *cobra.Command {
	OneOf(c, &p.Format, "output", "o", "form of the output: %s", formats...)
	return c
}

// Machine prints v when the user asked for a form for machines, and says whether.
func (p *Program) Machine(v any) (bool, error) {
	switch p.Format {
	case JSON:
		return true, p.WriteJSON(v, "  ")
	case YAML:
		b, err := yaml.Marshal(v)
		if err == nil {
			_, err = p.Out.Write(b)
		}
		return true, err
	}
	return false, nil
}

// Answer prints what a call gave, unless it failed: whole for machines, for people as show does.
func Answer[T any](p *Program, v T, err error, show func(T)) error {
	if err != nil {
		return err
	}
	if done, err := p.Machine(v); done {
		return err
	}
	show(v)
	return nil
}

// WriteJSON prints v exactly: the value that kithd sent, in lists that are never null. Without an indent it is one line.
func (p *Program) WriteJSON(v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := p.Out.Write(screen.ASCII(b.Bytes()))
	return err
}

// Would says what a command would do without --dry-run, a line for each effect.
func (p *Program) Would(effects ...string) {
	if effects = screen.NonEmpty(effects...); len(effects) == 0 {
		fmt.Fprintln(p.Out, "nothing would change")
		return
	}
	fmt.Fprintln(p.Out, "nothing was done; without --dry-run:")
	for _, effect := range effects {
		fmt.Fprintln(p.Out, "- "+strings.ReplaceAll(screen.CleanLines(effect), "\n", "\n  "))
	}
}

// Note is a line under a table: what it is about, and a sentence that has no room in it.
type Note struct{ About, Text string }

// Notes are sentences about one thing.
func Notes(about string, texts ...string) (notes []Note) {
	for _, text := range texts {
		notes = append(notes, Note{about, text})
	}
	return notes
}

// Listing is how a list of what kithd knows is asked for and shown.
type Listing[T any] struct {
	Get          func(*client.Client, context.Context) ([]T, error)
	Match        func(item T, name string) bool
	Noun, Others string // what one is called, and the command that lists them
	Columns      []screen.Column[T]
	None         string         // what to tell people when there are none
	Notes        func(T) []Note // nil: there are none
}

// List shows those that match one of names, in that order; all of them without names.
func List[T any](p *Program, c *cobra.Command, names []string, l Listing[T]) error {
	all, err := Call(p, c, l.Get)
	if err != nil {
		return err
	}
	if all, err = l.Pick(all, names); err != nil {
		return err
	}
	return Print(p, all, l)
}

// Print prints items in the form asked for.
func Print[T any](p *Program, items []T, l Listing[T]) error {
	if done, err := p.Machine(api.List[T](items)); done {
		return err
	}
	switch {
	case p.Format == Name:
		for _, item := range items {
			fmt.Fprintln(p.Out, screen.Clean(l.Columns[0].Cell(item)))
		}
		return nil
	case len(items) == 0:
		fmt.Fprintln(p.Err, l.None)
		return nil
	}
	screen.Table(p.Out, p.Style(p.OutTerminal), p.Format == Wide, l.Columns, items)
	if l.Notes == nil {
		return nil
	}
	for _, item := range items {
		for _, n := range l.Notes(item) {
			if n.Text != "" {
				fmt.Fprintf(p.Out, "%s: %s\n", screen.Clean(n.About), strings.ReplaceAll(screen.CleanLines(n.Text), "\n", " "))
			}
		}
	}
	return nil
}

// Pick keeps the items that match one of names, in that order; all of them without names.
func (l Listing[T]) Pick(items []T, names []string) ([]T, error) {
	if len(names) == 0 {
		return items, nil
	}
	var out []T
	for _, name := range names {
		before := len(out)
		for _, item := range items {
			if l.Match(item, name) {
				out = append(out, item)
			}
		}
		if len(out) == before {
			return nil, api.NotFound(l.Noun, name, l.Others)
		}
	}
	return out, nil
}

// Ago says how long t is past: "2m ago"; "" when it is not known.
func (p *Program) Ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return screen.Age(p.Now().Sub(t)) + " ago"
}

// Until says how long t is ahead: "in 9m".
func (p *Program) Until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if left := t.Sub(p.Now()); left > 0 {
		return "in " + screen.Age(left)
	}
	return p.Ago(t)
}

// Style says whether a stream gets colours: a terminal, unless NO_COLOR (no-color.org) or TERM says otherwise.
func (p *Program) Style(terminal bool) screen.Style {
	return screen.Style(terminal && p.Getenv("NO_COLOR") == "" && p.Getenv("TERM") != "dumb")
}
