// Command report makes docs/conformance.md out of what runs of upstream's tests left: JUnit files and facts. A test that failed
// must have its reason in the table of reasons; one that has none is an error, and nothing is written.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const usage = `usage: report -out FILE DIR     write the page; DIR/abroad, DIR/home and so on hold the runs; what FILE says of others it keeps
       report DIR               count, and look for failures without a reason
       report -expect N RUN     one run, which must be N tests that all passed
       report -failed RUN       print a regular expression of what failed in one run for no known reason
`

func main() {
	reasons := flag.String("reasons", "test/conformance/reasons.yaml", "the table of reasons")
	out := flag.String("out", "", "")
	expect := flag.Int("expect", 0, "")
	failed := flag.Bool("failed", false, "")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	var err error
	switch dir := flag.Arg(0); {
	case *failed:
		err = printFailed(dir, *reasons)
	case *expect > 0:
		err = expectAll(dir, *expect)
	default:
		err = report(dir, *reasons, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// printFailed is for another try: a test whose reason is known fails again.
func printFailed(dir, reasonsFile string) error {
	r, err := readRun(filepath.Base(dir), dir)
	if err != nil {
		return err
	}
	table, err := readReasons(reasonsFile)
	if err != nil {
		return err
	}
	fmt.Print(focus(slices.DeleteFunc(r.failed(), func(t *test) bool { return table.of(r.name, t.name) != nil })))
	return nil
}

func expectAll(dir string, n int) error {
	r, err := readRun("the sample", dir)
	if err != nil {
		return err
	}
	for _, t := range r.sorted() {
		fmt.Printf("%s %s\n", t.outcome, t.name)
	}
	if c := r.count(func(string) bool { return true }); c.passed != n || len(r.tests) != n {
		return fmt.Errorf("%d of the sample's %d tests passed, %d failed, %d skipped themselves", c.passed, n, c.failed, c.skipped)
	}
	return nil
}

func report(dir, reasonsFile, out string) error {
	var runs, further []*results
	for _, name := range append([]string{abroad, home}, names()...) {
		r, err := readRun(name, filepath.Join(dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case setNamed(name) != nil:
			further = append(further, r)
		default:
			runs = append(runs, r)
		}
	}
	all := slices.Concat(runs, further)
	if len(all) == 0 {
		return fmt.Errorf("no results in %s", dir)
	}
	table, err := readReasons(reasonsFile)
	if err != nil {
		return err
	}
	for _, r := range all {
		for _, id := range table.idle(r) {
			fmt.Fprintf(os.Stderr, "report: the reason %s explains no failure %s any more\n", id, where(r.name))
		}
	}
	if out == "" {
		counts(os.Stdout, all)
	}
	if bad := unexplained(all, table); len(bad) > 0 {
		return fmt.Errorf("%d tests failed that %s gives no reason for:\n  %s", len(bad), reasonsFile, strings.Join(bad, "\n  "))
	}
	for _, r := range further {
		if bad := setNamed(r.name).short(r); len(bad) > 0 {
			return fmt.Errorf("what has to pass did not, and a reason does not excuse it:\n  %s", strings.Join(bad, "\n  "))
		}
	}
	if out == "" {
		return nil
	}
	fresh := map[string]string{}
	if len(runs) > 0 {
		var b bytes.Buffer
		page(&b, runs, table)
		fresh[""] = b.String()
	}
	for _, r := range further {
		fresh[r.name] = setNamed(r.name).section(r, table)
	}
	old, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(out, []byte(together(string(old), fresh)), 0o644)
}

func unexplained(runs []*results, table reasons) (bad []string) {
	for _, r := range runs {
		for _, t := range r.failed() {
			if table.of(r.name, t.name) == nil {
				bad = append(bad, fmt.Sprintf("%s: %s\n    %s", r.name, t.name, firstLine(t.message)))
			}
		}
	}
	return bad
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}
