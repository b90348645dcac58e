// Command skips reads `go test -json` and shows what `go test` shows, failures in full and a line for each package. What failed comes
// once more at the end, in few lines, because logs of whole clusters may follow the reason, and before it what took long. With -none it fails
// when a test was skipped: a test that nobody runs says nothing. CI runs as root and so. -failed names a file for the tests that failed, if
// that is all that did: a package and a test each line.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json` (cmd/test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// report is what is said at the end.
type report struct {
	skipped, failed []string // each with its reason; of those that were skipped only what must not be
	long            []long   // longest first
	packages        []string // that failed
}

// tests gives the tests that failed, without their parts: a package and a test each line. It is empty when a package failed for another reason.
func (r report) tests() string {
	var all []string
	of := map[string]bool{}
	for _, f := range r.failed {
		pkg, rest, _ := strings.Cut(f, " ")
		test, _, _ := strings.Cut(strings.FieldsFunc(rest, func(c rune) bool { return c == ':' || c == '\n' })[0], "/")
		of[pkg] = true
		if line := pkg + " " + test + "\n"; !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	if slices.ContainsFunc(r.packages, func(p string) bool { return !of[p] }) {
		return ""
	}
	return strings.Join(all, "")
}

// long is a test that took long. Its parts are not listed.
type long struct {
	test string
	took time.Duration
}

// takesLong is from when on a test is one.
const takesLong = time.Minute

func main() {
	none := flag.Bool("none", false, "fail when a test was skipped")
	verbose := flag.Bool("v", false, "show what passes too")
	failed := flag.String("failed", "", "write here which tests failed, if nothing else did")
	flag.Parse()
	r, err := read(os.Stdin, os.Stdout, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
	for _, l := range r.long {
		fmt.Printf("%4.0f s: %s\n", l.took.Seconds(), l.test)
	}
	for _, s := range r.skipped {
		fmt.Printf("skipped: %s\n", s)
	}
	for _, f := range r.failed {
		fmt.Printf("failed: %s\n", f)
	}
	if *failed != "" && !(*none && len(r.skipped) > 0) {
		if err := os.WriteFile(*failed, []byte(r.tests()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "skips:", err)
			os.Exit(1)
		}
	}
	if *none && len(r.skipped) > 0 {
		fmt.Fprintf(os.Stderr, "skips: %d tests did not run, and must: run them as root, with what scripts/deps.sh installs\n", len(r.skipped))
		os.Exit(1)
	}
}

// read copies what is to be seen.
func read(in io.Reader, out io.Writer, verbose bool) (r report, err error) {
	said := map[string]string{} // by package and test, until it is known how it ended
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" { // of the compiler, or the race detector
			fmt.Fprintln(out, lines.Text())
			continue
		}
		key := e.Package + " " + e.Test
		if took := time.Duration(e.Elapsed * float64(time.Second)); took >= takesLong && e.Test != "" && !strings.Contains(e.Test, "/") {
			r.long = append(r.long, long{key, took})
		}
		switch e.Action {
		case "output", "build-output":
			if e.Test == "" || verbose {
				if verbose || !strings.HasPrefix(e.Output, "PASS") {
					fmt.Fprint(out, e.Output)
				}
			}
			if e.Test != "" {
				said[key] += e.Output
			}
		case "fail":
			if !verbose {
				fmt.Fprint(out, said[key])
			}
			if e.Test != "" {
				r.failed = append(r.failed, key+digest(said[key]))
			} else {
				r.packages = append(r.packages, e.Package)
			}
			delete(said, key)
		case "pass":
			delete(said, key)
		case "skip":
			if e.Test != "" {
				r.skipped = append(r.skipped, key+": "+why(said[key]))
			}
			delete(said, key)
		}
	}
	for key, text := range said { // it ended with its program: a panic, or a deadline
		fmt.Fprintf(out, "--- did not end: %s\n%s", key, text)
		r.failed = append(r.failed, key+": it did not end"+digest(text))
	}
	slices.SortFunc(r.long, func(a, b long) int { return cmp.Or(cmp.Compare(b.took, a.took), strings.Compare(a.test, b.test)) })
	return r, lines.Err()
}

// digest is what a test said first: of the messages that come from one place, as of how far a cluster is, the first, and of each no more
// than its first lines, because the log of a cluster may be in it.
func digest(output string) string {
	const messages, linesOfEach = 12, 6
	var said []string
	from := map[string]bool{}
	more := 0 // how many lines of the message we are in may follow
	for line := range strings.Lines(output) {
		switch at := message.FindString(line); {
		case at != "":
			if more = 0; !from[at] && len(from) < messages {
				from[at] = true
				more = linesOfEach
			}
		case !strings.HasPrefix(line, continued): // of another test, or of the testing
			more = 0
		}
		if more > 0 {
			more--
			said = append(said, fmt.Sprintf("\n    %.300s", strings.TrimRight(strings.TrimPrefix(line, "    "), "\n ")))
		}
	}
	return strings.Join(said, "")
}

// message is how testing begins one, in a test and in a part of one.
var message = regexp.MustCompile(`^ {4}[^ ]+\.go:[0-9]+: `)

// continued is how testing begins the further lines of a message.
const continued = "        "

// why is what the test said when it was skipped.
func why(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}
