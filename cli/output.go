package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// answer prints what a call gave, unless it failed: whole for machines, for people as show does.
func answer[T any](p *program, v T, err error, show func(T)) error {
	if err != nil {
		return err
	}
	if done, err := p.machine(v); done {
		return err
	}
	show(v)
	return nil
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
	_, err := p.Out.Write(screen.ASCII(b.Bytes()))
	return err
}

// note is a line under a table: what it is about, and a sentence that has no room in it.
type note struct{ about, text string }

// listing is how a list of what kithd knows is asked for and shown.
type listing[T any] struct {
	get          func(*client.Client, context.Context) ([]T, error)
	match        func(item T, name string) bool
	noun, others string // what one is called, and the command that lists them
	columns      []screen.Column[T]
	none         string // what to tell people when there are none
	notes        func(T) []note
}

// list shows those that match one of names, in that order; all of them without names.
func list[T any](p *program, c *cobra.Command, names []string, l listing[T]) error {
	all, err := call(p, c, l.get)
	if err != nil {
		return err
	}
	if all, err = l.pick(all, names); err != nil {
		return err
	}
	return printList(p, all, l)
}

// printList prints items in the form asked for.
func printList[T any](p *program, items []T, l listing[T]) error {
	if done, err := p.machine(api.List[T](items)); done {
		return err
	}
	switch {
	case p.format == formatName:
		for _, item := range items {
			fmt.Fprintln(p.Out, screen.Clean(l.columns[0].Cell(item)))
		}
		return nil
	case len(items) == 0:
		fmt.Fprintln(p.Err, l.none)
		return nil
	}
	screen.Table(p.Out, p.style(p.OutTerminal), p.format == formatWide, l.columns, items)
	for _, item := range items {
		for _, n := range l.notes(item) {
			if n.text != "" {
				fmt.Fprintf(p.Out, "%s: %s\n", screen.Clean(n.about), strings.ReplaceAll(screen.CleanLines(n.text), "\n", " "))
			}
		}
	}
	return nil
}

// pick keeps the items that match one of names, in that order; all of them without names.
func (l listing[T]) pick(items []T, names []string) ([]T, error) {
	if len(names) == 0 {
		return items, nil
	}
	var out []T
	for _, name := range names {
		before := len(out)
		for _, item := range items {
			if l.match(item, name) {
				out = append(out, item)
			}
		}
		if len(out) == before {
			return nil, api.NotFound(l.noun, name, l.others)
		}
	}
	return out, nil
}

// ago says how long t is past: "2m ago"; "" when it is not known.
func (p *program) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return screen.Age(p.Now().Sub(t)) + " ago"
}

// until says how long t is ahead: "in 9m".
func (p *program) until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if left := t.Sub(p.Now()); left > 0 {
		return "in " + screen.Age(left)
	}
	return p.ago(t)
}

// sameID compares cluster IDs as people copy them: any case, with dashes or not; prefix is enough when asked of long ones.
func sameID(id, typed string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	return len(plain(typed)) >= 4 && strings.HasPrefix(plain(id), plain(typed))
}

// style says whether a stream gets colours: a terminal, unless NO_COLOR (no-color.org) or TERM says otherwise.
func (p *program) style(terminal bool) screen.Style {
	return screen.Style(terminal && p.Getenv("NO_COLOR") == "" && p.Getenv("TERM") != "dumb")
}

// exitInterrupted is what shells expect after SIGINT.
const exitInterrupted = 130

// fail tells what went wrong and gives the exit code.
func (p *program) fail(ctx context.Context, command *cobra.Command, err error) int {
	if child, is := errors.AsType[*childError](err); is {
		return child.code
	}
	style := p.style(p.ErrTerminal)
	if ctx.Err() != nil {
		fmt.Fprintln(p.Err, style.Red("kith:"), "interrupted; what was begun goes on")
		return exitInterrupted
	}
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.CodeInternal, Message: err.Error()}
		if !p.ran {
			e.Code, e.Do = api.CodeInvalid, fmt.Sprintf("see `%s --help`", command.CommandPath())
		}
	}
	text := e.Message
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	// Words of peers can be in here; the lines are ours.
	fmt.Fprintln(p.Err, style.Red("kith:"), indented(text))
	if e.Do != "" {
		fmt.Fprintln(p.Err, "     ", indented(e.Do))
	}
	return e.Code.ExitCode()
}

// indented cleans text, leaves blank lines out, and sets its lines after the first under the first.
func indented(text string) string {
	lines := strings.FieldsFunc(screen.CleanLines(text), func(r rune) bool { return r == '\n' })
	return strings.Join(lines, "\n      ")
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `kith exits with

  0    it worked
  1    it failed; the message says why
  2    the command line is wrong, or a value in it is not allowed
  3    kithd is not running, or cannot be reached
  4    you are not permitted to talk to kithd
  5    there is no peer, request, contract or namespace of that name
  6    the peer declined, or the request expired
  7    it did not end within --timeout
  8    the peer accepted, and you have to confirm before anything is signed
  130  interrupted (Ctrl-C)`,
	}
}
