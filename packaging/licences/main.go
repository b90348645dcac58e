// Command licences writes packaging/deb/copyright, in Debian's machine-readable form (DEP-5), out of what the programs say of themselves:
// Go notes in each which modules are in it, and the module cache has their licences. A licence of a kind that is not known here ends it
// with an error: somebody has to read it. scripts/licences.sh calls it.
package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	text, err := write(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(text)
}

// write gives the file for these programs.
func write(programs []string) (string, error) {
	env, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	cache, goroot, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	modules, err := linked(programs)
	if err != nil {
		return "", err
	}
	all := []work{}
	var errs []error
	for _, m := range modules {
		w, err := look(m.path, filepath.Join(cache, escaped(m.path)+"@"+escaped(m.version)))
		all, errs = append(all, w), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	library, err := look("go", goroot)
	if err != nil {
		return "", err
	}
	return document(append(all, library))
}

type module struct{ path, version string }

// linked are the modules in the programs, each once, those of this tree left out.
func linked(programs []string) ([]module, error) {
	seen := map[module]bool{}
	for _, file := range programs {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// runc and the plugins of containerd are main modules, or dependencies of ours that have the program in them.
		for _, m := range append(info.Deps, &info.Main) {
			if r := m.Replace; r != nil && r.Version != "" && r.Version != "(devel)" {
				m = r
			} else if r != nil { // a copy with patches (scripts/patched.sh), under the licence of what it was made of
				if _, version, is := strings.Cut(filepath.Base(r.Path), "@"); is {
					m = &debug.Module{Path: m.Path, Version: version}
				}
			}
			if m.Path == "kith.dev" || strings.HasPrefix(m.Path, "kith.dev/") || strings.HasPrefix(m.Path, ".") || m.Version == "" || m.Version == "(devel)" {
				continue
			}
			seen[module{m.Path, m.Version}] = true
		}
	}
	var all []module
	for m := range seen {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.path+"@"+a.version, b.path+"@"+b.version) })
	return all, nil
}

// escaped is a module's path or version as the cache has it: no file system is asked to tell letters' case (golang.org/ref/mod).
func escaped(path string) string {
	var b strings.Builder
	for _, r := range path {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('!')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// work is what one module, or Go itself, says of its licence.
type work struct {
	path    string
	licence string // such as "Apache-2.0" or "BSD-3-Clause and MIT"
	holders []string
	notice  string // its NOTICE, which goes with every copy (section 4 d of Apache-2.0)
}

// look reads the licences at the top of a module.
func look(path, dir string) (work, error) {
	w := work{path: path}
	list, err := os.ReadDir(dir)
	if err != nil {
		return w, fmt.Errorf("%s: its sources are not there: go mod download (%w)", path, err)
	}
	var kinds []string
	for _, e := range list {
		name := strings.ToUpper(e.Name())
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil { // a folder
			continue
		}
		switch {
		case strings.HasPrefix(name, "NOTICE"):
			w.notice = strings.TrimSpace(w.notice + "\n\n" + string(text))
		case isLicence(name):
			found := kindsOf(string(text))
			if len(found) == 0 {
				return w, fmt.Errorf("%s: %s is of no kind that is known: read it, and add its kind to packaging/licences", path, filepath.Join(dir, e.Name()))
			}
			kinds = append(kinds, found...)
			w.holders = append(w.holders, holders(string(text))...)
		}
	}
	if len(kinds) == 0 {
		return w, fmt.Errorf("%s: no file of a licence in %s", path, dir)
	}
	for _, kind := range kinds {
		if !allowed[kind] {
			return w, fmt.Errorf("%s: its licence is %s, with which nothing may be linked here", path, kind)
		}
	}
	slices.Sort(kinds)
	w.licence = strings.Join(slices.Compact(kinds), " and ")
	slices.Sort(w.holders)
	if w.holders = slices.Compact(w.holders); len(w.holders) == 0 {
		w.holders = []string{"the authors of each"}
	}
	return w, nil
}

// isLicence reports whether a file, by its name in capitals, has the licence of what is in the programs.
func isLicence(name string) bool {
	for _, stem := range []string{"LICENSE", "LICENCE", "COPYING", "UNLICENSE", "SQLITE-LICENSE"} {
		if strings.HasPrefix(name, stem) && !strings.HasSuffix(name, ".GO") && !strings.HasSuffix(name, "-LOGO") {
			return true
		}
	}
	return false
}

// document puts all together: works of the same holders and the same licence are one paragraph.
func document(all []work) (string, error) {
	var b bytes.Buffer
	head, err := os.ReadFile("packaging/licences/head")
	if err != nil {
		return "", err
	}
	b.Write(head)
	paths := map[string][]string{}
	var order []work
	for _, w := range all {
		key := w.licence + "\n" + strings.Join(w.holders, "\n") + "\n" + w.notice
		if paths[key] == nil {
			order = append(order, w)
		}
		if !slices.Contains(paths[key], w.path+"/*") {
			paths[key] = append(paths[key], w.path+"/*")
		}
	}
	used := map[string]bool{"Apache-2.0": true, "LGPL-2.1": true}
	for _, w := range order {
		key := w.licence + "\n" + strings.Join(w.holders, "\n") + "\n" + w.notice
		fmt.Fprintf(&b, "\nFiles: %s\nCopyright: %s\nLicense: %s\n", strings.Join(paths[key], "\n "), strings.Join(w.holders, "\n "), w.licence)
		if w.notice != "" {
			fmt.Fprintf(&b, "Comment: Its NOTICE says:\n%s\n", folded(w.notice))
		}
		for _, kind := range strings.Split(w.licence, " and ") {
			used[kind] = true
		}
	}
	for _, k := range kinds {
		if used[k.name] {
			fmt.Fprintf(&b, "\nLicense: %s\n%s\n", k.name, folded(k.text))
		}
	}
	return b.String(), nil
}

// folded is text as a field has it in its further lines (deb-control(5)).
func folded(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		if line = strings.TrimRight(line, " \t\r\n"); line == "" {
			line = "."
		}
		lines = append(lines, " "+line)
	}
	return strings.Join(lines, "\n")
}
