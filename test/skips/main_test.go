package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const stream = `# kith.dev/x
{"Action":"start","Package":"kith.dev/x"}
{"Action":"run","Package":"kith.dev/x","Test":"TestA"}
{"Action":"output","Package":"kith.dev/x","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestA","Output":"    a_test.go:3: needs root\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"kith.dev/x","Test":"TestA"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"    a_test.go:7: booting\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"    a_test.go:7: booted\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"    a_test.go:9: left:\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        a socket\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"    a_test.go:5: the log of a cluster\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        b.go:7: a line of it\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        b.go:7: a line of it\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        b.go:7: a line of it\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        b.go:7: a line of it\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        b.go:7: a line of it\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        b.go:7: a line of it\n"}
{"Action":"output","Package":"kith.dev/x","Test":"TestB/part","Output":"        b.go:7: a line of it\n"}
{"Action":"fail","Package":"kith.dev/x","Test":"TestB/part","Elapsed":99}
{"Action":"output","Package":"kith.dev/x","Test":"TestC","Output":"    a_test.go:12: fine\n"}
{"Action":"pass","Package":"kith.dev/x","Test":"TestC","Elapsed":61.5}
{"Action":"pass","Package":"kith.dev/x","Test":"TestE","Elapsed":75}
{"Action":"output","Package":"kith.dev/x","Test":"TestD","Output":"panic: oh\n"}
{"Action":"output","Package":"kith.dev/x","Output":"FAIL\tkith.dev/x\t0.1s\n"}
{"Action":"fail","Package":"kith.dev/x","Elapsed":300}
{"Action":"skip","Package":"kith.dev/none"}
`

func TestSkippedTestsAreFoundAndFailuresShown(t *testing.T) {
	var out strings.Builder
	r, err := read(strings.NewReader(stream), &out, false)
	if err != nil || !slices.Equal(r.skipped, []string{"kith.dev/x TestA: a_test.go:3: needs root"}) {
		t.Errorf("%q, %v", r.skipped, err)
	}
	if want := []string{
		"kith.dev/x TestB/part\n    a_test.go:7: booting\n    a_test.go:9: left:\n        a socket\n    a_test.go:5: the log of a cluster" +
			strings.Repeat("\n        b.go:7: a line of it", 5), "kith.dev/x TestD: it did not end",
	}; !slices.Equal(r.failed, want) {
		t.Errorf("failed: %q", r.failed)
	}
	if want := []long{{"kith.dev/x TestE", 75 * time.Second}, {"kith.dev/x TestC", 61500 * time.Millisecond}}; !slices.Equal(r.long, want) {
		t.Errorf("took long: %v", r.long)
	}
	for _, want := range []string{"# kith.dev/x\n", "a_test.go:9: left:", "FAIL\tkith.dev/x", "panic: oh"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not shown: %q in\n%s", want, out.String())
		}
	}
	if want := "kith.dev/x TestB\nkith.dev/x TestD\n"; r.tests() != want {
		t.Errorf("tests that failed: %q", r.tests())
	}
	if r.packages = append(r.packages, "kith.dev/y"); r.tests() != "" { // it was not compiled, say
		t.Errorf("a package failed for another reason, and yet %q", r.tests())
	}
	if strings.Contains(out.String(), "fine") {
		t.Errorf("shown: %s", out.String())
	}
	out.Reset()
	if _, err := read(strings.NewReader(stream), &out, true); err != nil || !strings.Contains(out.String(), "fine") {
		t.Errorf("with -v not shown: %v %s", err, out.String())
	}
}
