package cli

import (
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/core/api"
	"kith.dev/docs"
)

// maxFound is how many places a word is shown at.
const maxFound = 40

func (p commands) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [PAGE|WORD]",
		Short: "Read the documentation, or look where it speaks of something",
		Long: `Read the documentation. Without an argument its pages are listed; the name of one shows it, in $PAGER on a terminal; another word
lists the places that speak of it.`,
		Example: "  kith docs\n  kith docs pods\n  kith docs quota",
		Args:    program.Between(0, 1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, page := range pages() {
				names = append(names, page.name+"\t"+page.title)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, page := range pages() {
					fmt.Fprintf(p.Out, "%-16s %s\n", page.name, page.title)
				}
				return nil
			}
			word := args[0]
			for _, page := range pages() {
				if strings.EqualFold(page.name, strings.TrimSuffix(word, ".md")) {
					return p.read(c, page.text)
				}
			}
			return p.find(word)
		},
	}
}

// page is one document.
type page struct{ name, title, text string }

// pages are all documents, by name.
func pages() (list []page) {
	files, _ := fs.ReadDir(docs.Pages, ".") // what is embedded can be read
	for _, f := range files {
		text, _ := fs.ReadFile(docs.Pages, f.Name())
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		list = append(list, page{strings.TrimSuffix(f.Name(), ".md"), title, docs.Plain(string(text))})
	}
	return list
}

// read shows a text, on a terminal in the pager of the user.
func (p commands) read(c *cobra.Command, text string) error {
	if p.OutTerminal {
		pager := strings.Fields(p.Getenv("PAGER")) // "less -R"
		if len(pager) == 0 {
			pager = []string{"less"}
		}
		if path, err := exec.LookPath(pager[0]); err == nil {
			cmd := exec.CommandContext(c.Context(), path, pager[1:]...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), p.Out, p.Err
			return cmd.Run()
		}
	}
	_, err := fmt.Fprint(p.Out, text)
	return err
}

// find lists the lines in which a word stands, each with its page and heading.
func (p commands) find(word string) error {
	style, found := p.Style(p.OutTerminal), 0
	for _, page := range pages() {
		heading, shown := "", ""
		for _, line := range strings.Split(page.text, "\n") {
			if title, is := strings.CutPrefix(line, "#"); is {
				heading = strings.TrimLeft(title, "# ")
			}
			if !strings.Contains(strings.ToLower(line), strings.ToLower(word)) {
				continue
			}
			if found++; found > maxFound {
				continue
			}
			if heading != shown {
				fmt.Fprintf(p.Out, "%s, %s\n", style.Bold(page.name), heading)
				shown = heading
			}
			fmt.Fprintf(p.Out, "    %s\n", strings.TrimSpace(line))
		}
	}
	switch {
	case found == 0:
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no page is called %q or speaks of it", word), Do: "`kith docs` lists the pages"}
	case found > maxFound:
		fmt.Fprintf(p.Out, "and %d lines more\n", found-maxFound)
	}
	return nil
}
