package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// junit is what the framework writes: what was not asked for is skipped without words, what skips itself says why.
func junit(cases ...string) string {
	return `<?xml version="1.0"?><testsuites><testsuite name="Kubernetes e2e suite">` +
		`<testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>` +
		`<testcase name="[It] [sig-node] not asked for [NodeConformance]" status="skipped"><skipped message="skipped"></skipped></testcase>` +
		strings.Join(cases, "") + `</testsuite></testsuites>`
}

func passes(name string) string {
	return `<testcase name="[It] ` + name + `" status="passed"></testcase>`
}
func fails(name string) string {
	return `<testcase name="[It] ` + name + `" status="failed"><failure type="failed">it broke&#xA;at length</failure></testcase>`
}

const (
	volume = "[sig-storage] a volume [NodeConformance] [Conformance]"
	job    = "[sig-apps] a job (with *) [Conformance]"
	nodes  = "[sig-apps] two nodes [Conformance]"
)

func write(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
}

// runs makes a run abroad in which the job failed twice and the volume once, and one at home in which everything passed.
func runs(t *testing.T) (dir string) {
	dir = t.TempDir()
	skips := `<testcase name="[It] ` + nodes + `" status="skipped"><skipped message="skipped - Requires at least 2 nodes"></skipped></testcase>`
	write(t, filepath.Join(dir, "abroad", "facts"), "kubernetes=v1.36.3\nminutes=40\nasked=4\nlater4=1 at v9\nnote=it rained\n")
	write(t, filepath.Join(dir, "abroad", "1", "junit_01.xml"), junit(fails(volume), fails(job), skips))
	write(t, filepath.Join(dir, "abroad", "3", "junit_01.xml"), junit(passes(volume), fails(job)))
	write(t, filepath.Join(dir, "abroad", "4", "junit_01.xml"), junit(passes(volume)))
	write(t, filepath.Join(dir, "home", "facts"), "kubernetes=v1.36.3\nminutes=30\nasked=3\n")
	write(t, filepath.Join(dir, "home", "1", "junit_01.xml"), junit(passes(volume), passes(job), skips))
	return dir
}

func TestAFailureWithoutAReasonIsAnErrorAndWritesNothing(t *testing.T) {
	dir := runs(t)
	table, out := filepath.Join(dir, "reasons.yaml"), filepath.Join(dir, "page.md")
	for _, of := range []string{`{runs: abroad, tests: ["a volume"]}`, `{runs: home, tests: ["a job"]}`} {
		write(t, table, "- {id: x, kind: host, why: Because., "+strings.Trim(of, "{}")+"}\n")
		err := report(dir, table, out)
		if err == nil || !strings.Contains(err.Error(), job+"\n    it broke") || strings.Contains(err.Error(), volume) {
			t.Errorf("with %s: %v", of, err)
		}
		if _, err := os.Stat(out); err == nil {
			t.Error("a page was written")
		}
	}
}

func TestPageCountsAndGivesReasons(t *testing.T) {
	dir := runs(t)
	table, out := filepath.Join(dir, "reasons.yaml"), filepath.Join(dir, "page.md")
	write(t, table, "- {id: x, kind: nodes, runs: both, why: Because., tests: ['^\\[sig-apps\\] a job']}\n")
	if err := report(dir, table, out); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Kubernetes v1.36.3",
		"| NodeConformance | abroad | 1 | 1 | 0 | 0 |",
		"| Conformance, sig-apps | abroad | 0 | 0 | 1 | 1 |",
		"| Conformance, sig-apps | home | 1 | 0 | 0 | 1 |",
		"| together, each test once | abroad | 1 | 1 | 1 | 1 |",
		"| minutes | 40 | 30 |",
		"The run abroad was stopped before all its tests had run.",
		"Of the run abroad: it rained.",
		"After the run abroad some of its tests were run once more, and count as they were then: 1 at v9.",
		"one of another kind: 1\n\nBecause.\n\n- \\[sig-apps\\] a job (with \\*) \\[Conformance\\]\n",
		"## What fails at home\n\nNothing.",
		"## What skips itself abroad\n\nRequires at least 2 nodes:\n\n- \\[sig-apps\\] two nodes",
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if bytes.Contains(b, []byte("The run at home was stopped")) {
		t.Error("the page says that a whole run was stopped")
	}
	if bytes.Contains(b, []byte("not asked for")) {
		t.Error("the page has a test that was not asked for")
	}
}

func TestASetIsASectionOfThePageAndLeavesTheOthers(t *testing.T) {
	dir := runs(t)
	table, out := filepath.Join(dir, "reasons.yaml"), filepath.Join(dir, "page.md")
	write(t, table, "- {id: x, kind: nodes, runs: both, why: Because., tests: ['a job']}\n"+
		"- {id: y, kind: design, runs: kubelet, why: It asks a pod., tests: ['^TestGetStats$']}\n")
	if err := report(dir, table, out); err != nil {
		t.Fatal(err)
	}
	conformance, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	only := t.TempDir()
	write(t, filepath.Join(only, "kubelet", "1", "tests.json"), `{"Action":"run","Test":"TestVirtualNode/TestGetStats"}
{"Action":"output","Test":"TestVirtualNode/TestGetStats","Output":"    basic.go:90: pods \"kith-bob\" not found\n"}
{"Action":"fail","Test":"TestVirtualNode/TestGetStats"}
{"Action":"pass","Test":"TestVirtualNode/TestGetPods"}
{"Action":"fail","Test":"TestVirtualNode"}
{"Action":"fail"}
`)
	for _, version := range []string{"v1", "v2"} {
		write(t, filepath.Join(only, "kubelet", "facts"), "version="+version+"\n")
		if err := report(only, table, out); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		rest, same := bytes.CutPrefix(b, conformance)
		if !same {
			t.Fatalf("the conformance tests' part has changed: %s", b)
		}
		for _, want := range []string{"; Kith " + version + ".\n", "| 2 | 1 | 1 | 0 |\n", "\nIt asks a pod.\n\n- TestGetStats\n"} {
			if bytes.Count(rest, []byte(want)) != 1 {
				t.Errorf("%q is not there once: %s", want, rest)
			}
		}
	}
	write(t, table, "- {id: x, kind: nodes, runs: both, why: Because., tests: ['a job']}\n")
	if err := report(only, table, out); err == nil || !strings.Contains(err.Error(), `pods "kith-bob" not found`) {
		t.Errorf("a failure without a reason: %v", err)
	}
}

// Names as ginkgo writes them, with the labels behind.
const (
	imports = "An import should be there [Required, ClusterIP]"
	dns     = "A DNS query of the <service>.<ns> domain [not cluster.local] should answer [Optional, DNS, Headless]"
)

func TestWhatIsRequiredIsExcusedByNoReason(t *testing.T) {
	all := "- {id: x, kind: nodes, runs: abroad, why: Of a peer., tests: ['.']}\n"
	excused := all + "- {id: y, kind: design, runs: mcs, why: It wants one network., tests: ['^A DNS query']}\n"
	for name, run := range map[string]struct{ cases, asked, table, want string }{
		"what is optional has a reason":        {passes(imports) + fails(dns), "2", excused, ""},
		"what is optional has none":            {passes(imports) + fails(dns), "2", all, "gives no reason for:\n  mcs: " + dns},
		"a reason for what is required":        {fails(imports) + passes(dns), "2", strings.ReplaceAll(excused, "A DNS query", "An import"), imports + " is required"},
		"what is required skips itself":        {skipsItself(imports) + passes(dns), "2", excused, imports + " is required"},
		"what is optional skips itself":        {passes(imports) + skipsItself(dns), "2", excused, ""},
		"a test without a label":               {fails("An import"), "1", strings.ReplaceAll(excused, "A DNS query", "An import"), "An import is required"},
		"the suite was stopped":                {passes(imports), "2", excused, `"2" tests were asked for, 1 ran`},
		"nobody knows how many were asked for": {passes(imports), "", excused, `"" tests were asked for, 1 ran`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			table, out := filepath.Join(dir, "reasons.yaml"), filepath.Join(dir, "page.md")
			write(t, table, run.table)
			write(t, out, "# Upstream's\n\n<!-- set kubelet -->\n## of a run whose results are elsewhere\n")
			write(t, filepath.Join(dir, "mcs", "facts"), "version=v1\nsuite=v0.5.2\nasked="+run.asked+"\n")
			write(t, filepath.Join(dir, "mcs", "1", "junit_01.xml"), junit(strings.ReplaceAll(strings.ReplaceAll(run.cases, "<service>", "&lt;service&gt;"), "<ns>", "&lt;ns&gt;")))
			err := report(dir, table, out)
			b, _ := os.ReadFile(out)
			if !strings.HasPrefix(string(b), "# Upstream's\n\n<!-- set kubelet -->\n## of a run whose results are elsewhere\n") {
				t.Errorf("what other runs left is not there as it was: %s", b)
			}
			if run.want == "" {
				if err != nil || !strings.Contains(string(b), "Kith v1, the suite v0.5.2.\n") || !strings.Contains(string(b), "\n| required | 1 | 1 | 0 | 0 |\n") {
					t.Errorf("%v: %s", err, b)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), run.want) {
				t.Errorf("%v, want %q", err, run.want)
			}
			if strings.Contains(string(b), "set mcs") {
				t.Errorf("a page was written: %s", b)
			}
		})
	}
}

func skipsItself(name string) string {
	return `<testcase name="[It] ` + name + `" status="skipped"><skipped message="skipped - This test requires at least 2 clusters"></skipped></testcase>`
}

func TestFocusFindsExactlyWhatFailed(t *testing.T) {
	r, err := readRun(abroad, filepath.Join(runs(t), "abroad"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := focus(r.failed()), `\[sig-apps\] a job \(with \*\) \[Conformance\]$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestASampleThatDidNotRunIsNoSuccess(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1", "junit_01.xml"), junit(passes(volume)))
	if err := expectAll(dir, 1); err != nil {
		t.Error(err)
	}
	if err := expectAll(dir, 2); err == nil {
		t.Error("one test is enough for two")
	}
}

func TestReasonsAreWholeOrRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "reasons.yaml")
	for _, bad := range []string{
		"- {id: x, kind: host, runs: abroad, why: Because.}\n",
		"- {id: x, kind: weather, runs: abroad, why: Because., tests: [a]}\n",
		"- {id: x, kind: host, runs: elsewhere, why: Because., tests: [a]}\n",
		"- {id: x, kind: host, runs: abroad, tests: [a]}\n",
		"- {id: x, kind: host, runs: abroad, why: Because., tests: ['[']}\n",
		"- {id: x, kind: host, runs: abroad, why: Because., tests: [a], also: b}\n",
	} {
		write(t, file, bad)
		if _, err := readReasons(file); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
}
