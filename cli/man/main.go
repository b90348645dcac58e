// Command man writes the manual pages of kith, kithd and kith-tray, docs/cli.md, and the shells' completions out of the same
// tables as the programs' own help. scripts/docs.sh and scripts/build.sh run it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"kith.dev/cli"
	"kith.dev/daemon/config"
	"kith.dev/tray"
)

func main() {
	dir := flag.String("man", "build/man", "directory of the manual pages")
	markdown := flag.String("markdown", "", "file of the commands' reference; empty writes none")
	example := flag.String("config", "", "file of an example configuration; empty writes none")
	shells := flag.String("completions", "", "directory of the shells' completions; empty writes none")
	flag.Parse()
	err := write(*dir, *markdown, *example)
	if err == nil && *shells != "" {
		err = completions(*shells)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(dir, markdown, example string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	none := func(string) string { return "" } // the environment
	kith, daemon, panel := cli.Command(), config.Command("", config.Actions{}), tray.Command(none, "")
	kith.InitDefaultCompletionCmd()
	for _, page := range []struct {
		of      *cobra.Command
		section string
	}{{kith, "1"}, {daemon, "8"}, {panel, "1"}} {
		forMan(page.of)
		page.of.Long += exitStatus(page.of)
		if err := doc.GenManTree(page.of, &doc.GenManHeader{Section: page.section, Source: "Kith", Manual: "Kith"}, dir); err != nil {
			return err
		}
	}
	files := map[string][]byte{
		filepath.Join(dir, "kith.yaml.5"): md2man.Render([]byte(configPage())),
		filepath.Join(dir, "kith-k8s.1"):  md2man.Render([]byte(enginePage)),
	}
	if markdown != "" {
		files[markdown] = []byte(reference(cli.Command(), daemon, tray.Command(none, "")))
	}
	if example != "" {
		files[example] = []byte(config.Example())
	}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// completions are what `kith completion SHELL` prints, under the names that the shells look for.
func completions(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	kith := cli.Command()
	return errors.Join(
		kith.GenBashCompletionFileV2(filepath.Join(dir, "kith.bash"), true),
		kith.GenZshCompletionFile(filepath.Join(dir, "_kith")),
		kith.GenFishCompletionFile(filepath.Join(dir, "kith.fish"), true),
	)
}

// forMan leaves out the date, so that the same source gives the same pages, and marks blocks as such.
func forMan(c *cobra.Command) {
	c.DisableAutoGenTag = true
	c.Long = strings.TrimPrefix(indentBlocks(c.Long), "\n")
	for _, sub := range c.Commands() {
		forMan(sub)
	}
}

// exitStatus is the chapter of kith(1) out of `kith help exit-codes`; the others have none.
func exitStatus(kith *cobra.Command) string {
	for _, c := range kith.Commands() {
		if c.Name() == "exit-codes" {
			return "\n\n# EXIT STATUS\n" + c.Long + "\n"
		}
	}
	return ""
}

// enginePage is kith-k8s(1) as Markdown. The program is another module's, and kithd runs all of it but this.
const enginePage = `% "KITH-K8S" "1" "" "Kith" "Kith"

# NAME
kith-k8s - the built-in Kubernetes of Kith, and its kubectl

# SYNOPSIS
**kith-k8s kubectl** *ARGUMENTS*...

**kith-k8s timeline** [*LOG*]...

**kith-k8s version**

# DESCRIPTION
kith-k8s is Kubernetes for one laptop in one program. kithd(8) runs it; what is left for people is its kubectl, the real one, and a look at its start. Called
under the name kubectl, by a link for example, it is nothing else:

    ln -s "$(command -v kith-k8s)" ~/.local/bin/kubectl

# WHICH CLUSTER
kubectl goes where **KUBECONFIG**, **--kubeconfig**, **--server** or **--context** say, the last in your own ~/.kube/config. Without these
it finds this laptop's cluster by itself: root by the engine's own kubeconfig, a member of the group kith by one that kithd gives it for
this call, which is kept nowhere. Where kithd cannot be asked, kubectl's usual ~/.kube/config comes last; without that, kubectl says why
kithd cannot be asked, and exits as kith(1) does.

# HOW LONG A START TAKES
**kith-k8s timeline** draws, from the logs of kith-k8s and of kithd, when each part of the last start began and when others could go on with
it; **-** is standard input. Without a *LOG* it reads that of the Kubernetes which kithd runs:

    journalctl -u kithd -o cat | kith-k8s timeline - /var/lib/kith/k8s/server.log

# SEE ALSO
kith(1), kith-kubeconfig(1), kithd(8)
`

// configPage is kith.yaml(5) as Markdown.
func configPage() string {
	var b strings.Builder
	fmt.Fprintf(&b, `%% "KITH.YAML" "5" "" "Kith" "Kith"

# NAME
kith.yaml - configuration of kithd

# SYNOPSIS
%s

# DESCRIPTION
kithd reads this YAML file when it starts. It need not exist, and every key may be left out. A key that is not known,
a value that is not allowed and a key given twice are errors: kithd says which and does not start (exit status 78). Each key is also a
flag of kithd(8), which wins over the file.

# KEYS
`, config.DefaultPath)
	for _, k := range config.Keys() {
		fmt.Fprintf(&b, "**%s**\n: %s. It must be %s. %s Flag: **--%s**.\n\n", k.Name, capital(k.Help), k.Allowed, defaultOf(k), k.Flag())
	}
	b.WriteString("A key with a dot stands in a section of the file:\n\n```\ndiscovery:\n  lan: true\n```\n\n")
	b.WriteString("# EXAMPLE\n\n```\n" + config.Example() + "```\n\n# SEE ALSO\nkithd(8), kith(1)\n")
	return b.String()
}

func defaultOf(k config.Key) string {
	switch {
	case k.Default == "":
		return "Default: none."
	case k.Follows:
		return "Default: " + k.Default + "."
	}
	return "Default: `" + k.Default + "`."
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// reference is docs/cli.md.
func reference(kith, kithd, panel *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Command line\n\nWritten by `scripts/docs.sh` out of the programs themselves.\n\n")
	chapter(&b, kith)
	chapter(&b, kithd)
	chapter(&b, panel)
	b.WriteString("## Configuration of kithd\n\nThe file `" + config.DefaultPath + "`; every key may be left out, and each is a flag too.\n\n" +
		"| key | what | allowed | default |\n|---|---|---|---|\n")
	for _, k := range config.Keys() {
		def := k.Default
		if !k.Follows && def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, cell(k.Help), cell(k.Allowed), def)
	}
	return b.String()
}

func cell(text string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(text) }

// chapter writes c and what is under it; generated commands (completion, help) are left to --help.
func chapter(b *strings.Builder, c *cobra.Command) {
	if c.Name() == "completion" || c.Name() == "help" {
		return
	}
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "## %s\n\n%s\n\n", c.CommandPath(), strings.TrimSpace(indentBlocks(text)))
	if c.Runnable() {
		fmt.Fprintf(b, "```\n%s\n```\n\n", c.UseLine())
	}
	if c.Example != "" {
		fmt.Fprintf(b, "Examples:\n\n```sh\n%s\n```\n\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
	}
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() && c.Runnable() {
		fmt.Fprintf(b, "Flags:\n\n```\n%s```\n\n", flags.FlagUsages())
	}
	for _, sub := range c.Commands() {
		chapter(b, sub)
	}
}

// indentBlocks makes code blocks of lines that begin with two spaces.
func indentBlocks(text string) string {
	return strings.ReplaceAll("\n"+text, "\n  ", "\n      ")
}
