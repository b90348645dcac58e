package main

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The forms are those of kubectl cp (k8s.io/kubectl/pkg/cmd/cp).
func TestParseTarTakesWhatKubectlSends(t *testing.T) {
	for line, want := range map[string]tarOptions{
		"cf - /tmp/d":       {create: true, archive: "-", dir: ".", paths: []string{"/tmp/d"}},
		"-xmf - -C /tmp":    {extract: true, archive: "-", dir: "/tmp"},
		"xmf - -C /tmp":     {extract: true, archive: "-", dir: "/tmp"},
		"-xmf -":            {extract: true, archive: "-", dir: "."},
		"cf - a b -C /data": {create: true, archive: "-", dir: "/data", paths: []string{"a", "b"}},
		"--no-same-permissions --no-same-owner -xmf - -C /x": {extract: true, archive: "-", dir: "/x"},
	} {
		got, err := parseTar(strings.Fields(line))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("tar %s: %+v, %v", line, got, err)
		}
	}
	for _, line := range []string{"", "cf -", "f -", "cxf - a", "cf file a", "czf - a", "xf - -C"} {
		if o, err := parseTar(strings.Fields(line)); err == nil {
			t.Errorf("tar %s: taken as %+v", line, o)
		}
	}
}

func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "d/empty"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "d/hello"), []byte("hello"), 0o640))
	must(os.WriteFile(filepath.Join(dir, "d/run"), bytes.Repeat([]byte("x"), 100000), 0o755))
	must(os.Symlink("hello", filepath.Join(dir, "d/link")))
	return dir
}

func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		what := i.Mode().String()
		if i.Mode().IsRegular() {
			b, _ := os.ReadFile(p)
			what += " " + string(b)
		}
		if rel != "." {
			all[rel] = what
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTarThereAndBack(t *testing.T) {
	from, to := tree(t), t.TempDir()
	var b bytes.Buffer
	if err := (tarOptions{create: true, dir: from, paths: []string{"d"}}).write(&b); err != nil {
		t.Fatal(err)
	}
	if err := (tarOptions{extract: true, dir: to}).read(&b); err != nil {
		t.Fatal(err)
	}
	if got, want := list(t, to), list(t, from); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTarUnderstandsTheOtherTar(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("there is no tar here")
	}
	from, to := tree(t), t.TempDir()
	var b bytes.Buffer
	if err := (tarOptions{create: true, paths: []string{from + "/d"}}).write(&b); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("tar", "xf", "-", "-C", to, "--strip-components", "2")
	c.Stdin = &b
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c = exec.Command("tar", "cf", "-", "-C", from, "d")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	back := t.TempDir()
	if err := (tarOptions{extract: true, dir: back}).read(bytes.NewReader(out)); err != nil {
		t.Fatal(err)
	}
	if got, want := list(t, back), list(t, from); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTarStaysBelowItsDirectory(t *testing.T) {
	for _, h := range []tar.Header{
		{Name: "../evil", Typeflag: tar.TypeReg},
		{Name: "out/evil", Typeflag: tar.TypeReg}, // through a link to the outside
	} {
		outside := t.TempDir()
		to := filepath.Join(outside, "in")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(to, "out")); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := (tarOptions{extract: true, dir: to}).read(&b); err == nil {
			t.Errorf("%s was taken", h.Name)
		}
		if _, err := os.Stat(filepath.Join(outside, "evil")); err == nil {
			t.Errorf("%s went outside", h.Name)
		}
	}
}
