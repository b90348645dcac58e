package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
)

// unpack gives the files of an archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, api.BugReportFolder)] = string(text)
	}
}

func TestPartsAreBoundedAndCleaned(t *testing.T) {
	long := strings.Repeat("a line"+strings.Repeat(", and more", 50)+", of the log\n", maxPart/400)
	say := func(text string, err error) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return []byte(text), err }
	}
	parts := []Part{
		{Name: "beginning", Make: say("first\n"+long, nil)},
		{Name: "end", Make: say(long+"last\n", nil), End: true},
		{Name: "failed", Make: say("some\n", errors.New("no answer; password=hunter2"))},
		{Name: "secret", Make: say("token: hunter2\n", nil)},
		{Name: "raw", Make: say("token: \x00\xff", nil), Raw: true},
		{Name: "raw, too long", Make: say(long, nil), Raw: true},
		{Name: "raw, failed", Make: say("token: half", errors.New("no")), Raw: true},
	}
	for range 10 {
		parts = append(parts, Part{Name: "more", Make: say(long, nil)})
	}
	var b bytes.Buffer
	if err := Write(t.Context(), &b, time.Now(), parts); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, b.Bytes())
	all := 0
	for name, text := range files {
		if all += len(text); len(text) > maxPart || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %d bytes", name, len(text))
		}
	}
	if all > maxAll {
		t.Errorf("%d bytes in all", all)
	}
	for name, want := range map[string][2]string{
		"beginning": {"first\na line", ", of the log\n" + leftOut}, "end": {leftOut + "a line", "last\n"},
		"failed": {"some\nnot all of it is here: no answer; password=[redacted]", ""}, "secret": {"token: [redacted]", ""},
		"raw": {"token: \x00\xff", ""}, "raw, too long": {"not all of it is here", ""}, "raw, failed": {"not all of it is here: no\n", ""}, "more": {leftOut, ""},
	} {
		if text := files[name]; !strings.HasPrefix(text, want[0]) || !strings.HasSuffix(text, want[1]) {
			t.Errorf("%s: %.60q … %q", name, text, text[max(len(text)-60, 0):])
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ended, io.Discard, time.Now(), parts); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestAReportOfASickMachineIsMadeInTime: parts without an answer neither take for ever nor cost the others.
func TestAReportOfASickMachineIsMadeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
		parts := []Part{Text("first", "", "here\n")}
		for range 30 {
			parts = append(parts, Part{Name: "hangs", Make: hangs})
		}
		parts = append(parts, Text("last", "", "here\n"))
		var b bytes.Buffer
		began := time.Now()
		if err := Write(t.Context(), &b, began, parts); err != nil {
			t.Fatal(err)
		}
		files := unpack(t, b.Bytes())
		if took := time.Since(began); took > allTime || files["first"] != "here\n" || !strings.Contains(files["hangs"], "not all of it is here") || !strings.Contains(files["last"], "took too long") {
			t.Errorf("%s: %q", took, files)
		}
	})
}

func TestWhatIsMountedForPodsIsNotNamed(t *testing.T) {
	const mounts = "30 1 254:0 / / rw - ext4 /dev/vda rw\n" +
		"31 30 0:40 / /var/lib/kith/k8s/kubelet/pods/4b1e/volumes/kubernetes.io~secret/pl4nted rw - tmpfs tmpfs rw\n" +
		"32 30 0:41 / /run/kith/k8s/containerd/io.containerd.runtime.v2.task/k8s.io/4b1e/rootfs rw - overlay overlay rw\n33 30 0:42 / /tmp rw - tmpfs tmpfs rw\n"
	text := string(withoutPods([]byte(mounts)))
	if strings.Contains(text, "pl4nted") || strings.Contains(text, "4b1e") || !strings.Contains(text, "/dev/vda") || !strings.Contains(text, " /tmp ") || !strings.Contains(text, "and 2 mounts of pods") {
		t.Error(text)
	}
}

func TestTheEndOfALogIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, append(bytes.Repeat([]byte("an old line, and more of it, of a log that is long, old line.\n"), maxPart/40), "new line\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	text := string(Log("log", "", path).make(t.Context(), maxPart))
	if len(text) > maxPart || !strings.HasSuffix(text, "old line.\nnew line\n") {
		t.Errorf("%d bytes, … %q", len(text), text[len(text)-40:])
	}
	for _, path := range []string{filepath.Dir(path), "/nowhere/log", "/dev/zero"} {
		if text := string(Log("log", "", path).make(t.Context(), maxPart)); !strings.HasPrefix(text, "not all of it is here") {
			t.Errorf("%s: %.100q", path, text)
		}
	}
}

func TestAProgramThatSaysTooMuchOrFails(t *testing.T) {
	for name, tc := range map[string]struct {
		end      bool
		args     []string
		contains string
	}{
		"endless":     {false, []string{"sh", "-c", "yes some words, and more of them, in a long line of a log | head -c 6000000"}, "a log\nsome"},
		"its end":     {true, []string{"sh", "-c", "yes some words, and more of them, in a long line of a log | head -c 6000000; echo; echo last"}, "\nlast\n"},
		"fails":       {false, []string{"sh", "-c", "echo out; echo why >&2; exit 3"}, "out\nnot all of it is here: sh: exit status 3: why"},
		"not there":   {false, []string{"no-such-program"}, "no-such-program is not installed"},
		"by its name": {false, []string{"true"}, ""},
	} {
		text := string(commandOf(name, "", tc.end, tc.args).make(t.Context(), maxPart))
		if len(text) > maxPart || !strings.Contains(text, tc.contains) {
			t.Errorf("%s: %d bytes, %.200q", name, len(text), text)
		}
	}
}

func TestTheSystemsPartsSayNothingOfOthers(t *testing.T) {
	var b bytes.Buffer
	if err := Write(t.Context(), &b, time.Now(), System()); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, b.Bytes())
	for _, name := range []string{"README.txt", "system/os.txt", "network/addresses.txt", "network/routes.txt"} {
		if files[name] == "" {
			t.Errorf("%s is empty", name)
		}
	}
	list, err := api.BugReportFiles(bytes.NewReader(b.Bytes()))
	if err != nil || len(list) != len(files) {
		t.Errorf("%v %v", list, err)
	}
	for _, cut := range [][]byte{nil, b.Bytes()[:b.Len()/2], []byte("no archive")} {
		if _, err := api.BugReportFiles(bytes.NewReader(cut)); !errors.Is(err, &api.Error{Code: api.CodeInternal}) {
			t.Errorf("%d bytes: %v", len(cut), err)
		}
	}
}
