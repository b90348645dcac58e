// The program claims writes into docs/claims.md which tests show what the pages say. A page marks a sentence with a comment
// behind it, in a table at the end of the row: <!-- shown by TestOne; TestTwo/sub test; core/net/gateway.TestThree -->. The folder
// is needed where several have a test of that name and one of them is meant. With --check it writes nothing, and fails when
// docs/claims.md is old. Either way it fails when a page names a test that is not there, and when a comment has no sentence.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	list  = "docs/claims.md"
	begin = "<!-- claims: begin -->\n"
	end   = "<!-- claims: end -->\n"
)

func main() {
	if err := run(len(os.Args) > 1 && os.Args[1] == "--check"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(check bool) error {
	all, err := readTests()
	if err != nil {
		return err
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		return err
	}
	// What others can do to a laptop first, then what the newcomer reads, then all else.
	pages = slices.DeleteFunc(pages, func(p string) bool { return p == list || p == "docs/security.md" })
	pages = append([]string{"docs/security.md", "README.md"}, pages...)

	var written strings.Builder
	var wrong []error
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		claims, errs := claimsOf(string(text))
		errs = append(errs, all.namedIn(string(text))...)
		errs = append(errs, all.write(&written, page, claims)...)
		for _, err := range errs {
			wrong = append(wrong, fmt.Errorf("%s: %w", page, err))
		}
	}
	old, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	before, rest, _ := strings.Cut(string(old), begin)
	_, after, marked := strings.Cut(rest, end)
	if !marked {
		return fmt.Errorf("%s has no lines %q and %q", list, begin, end)
	}
	for _, err := range all.namedIn(before + after) {
		wrong = append(wrong, fmt.Errorf("%s: %w", list, err))
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	fresh := before + begin + written.String() + "\n" + end + after
	switch {
	case fresh == string(old):
		return nil
	case check:
		return fmt.Errorf("%s is old: run scripts/claims.sh", list)
	}
	return os.WriteFile(list, []byte(fresh), 0o644)
}

// where is a folder that has a test of some name.
type where struct{ folder, kind string }

// tests are all tests of the repository: their folders by the names of their functions, and the text of each folder's test files.
type tests struct {
	named map[string][]where
	text  map[string]string
}

var (
	function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	tags     = regexp.MustCompile(`(?m)^//go:build (.*)$`)
)

func readTests() (tests, error) {
	all := tests{named: map[string][]where{}, text: map[string]string{}}
	files, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "*_test.go").Output()
	if err != nil {
		return all, err
	}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) { // deleted, and not yet in the index
			continue
		}
		if err != nil {
			return all, err
		}
		all.add(file, string(bytes.ToValidUTF8(text, nil)))
	}
	return all, nil
}

func (all tests) add(file, text string) {
	at := where{path.Dir(file), "unit"}
	if m := tags.FindStringSubmatch(text); m != nil {
		at.kind = kind(m[1])
	}
	all.text[at.folder] += text
	for _, m := range function.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(all.named[m[1]], at) {
			all.named[m[1]] = append(all.named[m[1]], at)
		}
	}
}

// kinds are what there are of tests, in the order of what they cost.
var kinds = []string{"unit", "lab", "soak", "packages"}

// kind is the kind of the tests of a file, by its build tags.
func kind(tags string) string {
	tags = strings.ReplaceAll(tags, "!soak", "")
	for _, kind := range []string{"soak", "packages", "lab"} {
		if strings.Contains(tags, kind) {
			return kind
		}
	}
	return "unit"
}

var testName = regexp.MustCompile(`^(?:([a-z0-9/]+)\.)?((?:Test|Fuzz)\w+)(?:/(.+))?$`)

// find is where a test is that a comment names; none, and why, when it is not there.
func (all tests) find(name string) ([]where, error) {
	m := testName.FindStringSubmatch(name)
	if m == nil {
		return nil, fmt.Errorf("%q is not the name of a test", name)
	}
	folder, function, sub := m[1], m[2], m[3]
	found := slices.DeleteFunc(slices.Clone(all.named[function]), func(w where) bool {
		return folder != "" && w.folder != folder || sub != "" && !strings.Contains(all.text[w.folder], strings.ReplaceAll(sub, "_", " "))
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("no test is called %s", name)
	}
	return found, nil
}

var (
	code       = regexp.MustCompile("`[^`]*`")
	nameInCode = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
)

// namedIn says which tests a page names in code spans that are not there. What follows -run is the beginning of names.
func (all tests) namedIn(page string) (wrong []error) {
	for _, span := range code.FindAllString(page, -1) {
		for _, name := range nameInCode.FindAllString(span, -1) {
			if _, there := all.named[name]; there {
				continue
			}
			begins := false
			for test := range all.named {
				begins = begins || strings.HasPrefix(test, name)
			}
			if !begins || !strings.Contains(page, "-run "+name) {
				wrong = append(wrong, fmt.Errorf("no test is called %s", name))
			}
		}
	}
	return wrong
}

// write writes the claims of a page as tables, one below each heading.
func (all tests) write(to *strings.Builder, page string, claims []claim) (wrong []error) {
	link, heading := strings.TrimPrefix(page, "docs/"), ""
	if page == "README.md" {
		link = "../README.md"
	}
	for i, c := range claims {
		if i == 0 {
			fmt.Fprintf(to, "\n# [%s](%s)\n", page, link)
		}
		if i == 0 || c.anchor != heading {
			heading = c.anchor
			fmt.Fprintf(to, "\n## [%s](%s#%s)\n\n| claim | tests | |\n|---|---|---|\n", c.heading, link, c.anchor)
		}
		var folders, has []string
		named := map[string][]string{}
		for _, name := range c.tests {
			found, err := all.find(name)
			if err != nil {
				wrong = append(wrong, err)
			}
			for _, w := range found {
				if _, known := named[w.folder]; !known {
					folders = append(folders, w.folder)
				}
				named[w.folder] = append(named[w.folder], "`"+strings.TrimPrefix(name, w.folder+".")+"`")
				has = append(has, w.kind)
			}
		}
		for i, folder := range folders {
			folders[i] = folder + ": " + strings.Join(named[folder], ", ")
		}
		of := slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return !slices.Contains(has, k) })
		fmt.Fprintf(to, "| %s | %s | %s |\n", c.sentence, strings.Join(folders, "; "), strings.Join(of, ", "))
	}
	return wrong
}
