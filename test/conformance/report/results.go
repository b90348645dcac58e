package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The runs of the conformance tests: with their pods at a peer, and on a laptop alone. The further sets are in sets.go.
const (
	abroad = "abroad"
	home   = "home"
)

type outcome int

const (
	passed outcome = iota
	failed
	skipped // by the test itself, which says why
)

func (o outcome) String() string { return [...]string{"passed ", "FAILED ", "skipped"}[o] }

// test is one test of a run.
type test struct {
	name    string // as upstream writes it, without "[It] "
	outcome outcome
	message string
	again   bool // passed only when it was run again
}

// results is one run. Facts are what the script noted of it: key=value lines.
type results struct {
	name  string
	tests map[string]*test
	facts map[string]string
}

type suites struct {
	Suites []struct {
		Cases []testcase `xml:"testcase"`
	} `xml:"testsuite"`
}

type testcase struct {
	Name    string `xml:"name,attr"`
	Status  string `xml:"status,attr"`
	Skipped *struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
	Failure *text `xml:"failure"`
	Error   *text `xml:"error"`
}

type text struct {
	Message string `xml:"message,attr"`
	Body    string `xml:",chardata"`
}

func (t *text) String() string {
	if t.Message != "" {
		return t.Message
	}
	return t.Body
}

// readRun reads every JUnit file below a directory, and what go test wrote, in the order of their paths: the passes of a run are
// numbered, and what a later one says of a test holds. Facts are there once the run is over.
func readRun(name, dir string) (*results, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	r := &results{name: name, tests: map[string]*test{}, facts: map[string]string{}}
	if err := r.readFacts(filepath.Join(dir, "facts")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for pattern, read := range map[string]func([]byte) error{"junit_*.xml": r.readJUnit, "tests.json": r.readEvents} {
		files, err := filepath.Glob(filepath.Join(dir, "*", pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := read(b); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if len(r.tests) == 0 {
		return nil, fmt.Errorf("no tests in %s", dir)
	}
	r.facts["ran"] = strconv.Itoa(len(r.tests))
	return r, nil
}

func (r *results) readJUnit(b []byte) error {
	var s suites
	if err := xml.Unmarshal(b, &s); err != nil {
		return err
	}
	for _, suite := range s.Suites {
		for _, c := range suite.Cases {
			r.take(c)
		}
	}
	return nil
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// readEvents takes the tests within a test; that one only holds them.
func (r *results) readEvents(b []byte) error {
	said := map[string]string{}
	outcomes := map[string]outcome{"pass": passed, "fail": failed, "skip": skipped}
	for in := json.NewDecoder(bytes.NewReader(b)); ; {
		var e event
		if err := in.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		_, name, within := strings.Cut(e.Test, "/")
		if !within {
			continue
		}
		if o, over := outcomes[e.Action]; over {
			r.put(&test{name: name, outcome: o, message: said[name]})
		} else if line := strings.TrimSpace(e.Output); !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			said[name] = line // the last one says why
		}
	}
}

func (r *results) take(c testcase) {
	name, isTest := strings.CutPrefix(c.Name, "[It] ")
	if !isTest {
		return // of the suite, before and after
	}
	t := &test{name: name}
	switch {
	case c.Failure != nil:
		t.outcome, t.message = failed, c.Failure.String()
	case c.Error != nil:
		t.outcome, t.message = failed, c.Error.String()
	case c.Skipped != nil:
		message, said := strings.CutPrefix(c.Skipped.Message, "skipped - ")
		if !said {
			return // not asked for
		}
		t.outcome, t.message = skipped, message
	}
	r.put(t)
}

// put takes what a pass says of a test in the place of what an earlier one said.
func (r *results) put(t *test) {
	before := r.tests[t.name]
	t.again = before != nil && (before.outcome == failed || before.again) && t.outcome == passed
	r.tests[t.name] = t
}

func (r *results) readFacts(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if k, v, ok := strings.Cut(lines.Text(), "="); ok {
			r.facts[k] = v
		}
	}
	return lines.Err()
}

// sorted gives the tests by name.
func (r *results) sorted() []*test {
	return slices.SortedFunc(maps.Values(r.tests), func(a, b *test) int { return strings.Compare(a.name, b.name) })
}

func (r *results) failed() []*test {
	return slices.DeleteFunc(r.sorted(), func(t *test) bool { return t.outcome != failed })
}

// focus is the regular expression by which ginkgo finds exactly these tests.
func focus(tests []*test) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = regexp.QuoteMeta(t.name) + "$"
	}
	return strings.Join(names, "|")
}
