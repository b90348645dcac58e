package codesign

import (
	"bytes"
	"debug/macho"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kith.dev/packaging/macos/fat"
)

// program links a small program for macOS on a processor. Go signs that for arm64 itself, as macOS wants, and leaves that for amd64.
func program(t *testing.T, arch string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { println(1) }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command("go", "build", "-ldflags", "-s -w", "-o", "x", ".")
	c.Dir, c.Env = dir, append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func universal(t *testing.T) []byte {
	t.Helper()
	b, err := fat.Join(program(t, "amd64"), program(t, "arm64"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAProgramForBothProcessorsIsSigned(t *testing.T) {
	unsigned := universal(t)
	seal := Seal{ID: "dev.kith.test", Info: []byte("info"), Resources: []byte("resources")}
	signed, err := Sign(unsigned, seal)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Sign(unsigned, seal)
	if err != nil || !bytes.Equal(signed, again) {
		t.Errorf("signed twice it is not the same: %v", err)
	}
	twice, err := Sign(signed, seal)
	if err != nil || !bytes.Equal(signed, twice) {
		t.Errorf("what is signed is another when it is signed again: %v", err)
	}
	all, err := Check(signed, seal)
	if err != nil || len(all) != 2 || all[0].CPU != macho.CpuAmd64 || all[1].CPU != macho.CpuArm64 || bytes.Equal(all[0].CDHash, all[1].CDHash) {
		t.Fatalf("%+v %v", all, err)
	}
	f, err := macho.NewFatFile(bytes.NewReader(signed))
	if err != nil {
		t.Fatal(err)
	}
	before, err := macho.NewFatFile(bytes.NewReader(unsigned))
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range f.Arches {
		for _, name := range []string{"__text", "__rodata", "__data", "__gopclntab"} {
			was, is := before.Arches[i].Section(name), a.Section(name)
			if was == nil || is == nil {
				t.Fatalf("%v has no %s", a.Cpu, name)
			}
			x, _ := was.Data()
			y, _ := is.Data()
			if len(x) == 0 || !bytes.Equal(x, y) || was.Addr != is.Addr {
				t.Errorf("%s of %v changed", name, a.Cpu)
			}
		}
		if end := 32 + int(a.Cmdsz); end > int(a.Section("__text").Offset) {
			t.Errorf("the load commands of %v end in the code", a.Cpu)
		}
	}
}

func TestWhatChangedAfterItWasSignedIsFound(t *testing.T) {
	seal := Seal{ID: "dev.kith.test", Info: []byte("info"), Resources: []byte("resources")}
	thin := program(t, "amd64")
	if _, err := Check(thin, seal); err == nil || !strings.Contains(err.Error(), "not signed") {
		t.Errorf("unsigned: %v", err)
	}
	if _, err := Check(program(t, "arm64"), seal); err == nil || !strings.Contains(err.Error(), "flags") {
		t.Errorf("signed by the linker alone: %v", err)
	}
	signed, err := Sign(thin, seal)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(signed)
	changed[5000] ^= 1
	if _, err := Check(changed, seal); err == nil || !strings.Contains(err.Error(), "page 1 of") {
		t.Errorf("a bit of the code: %v", err)
	}
	for what, s := range map[string]Seal{
		"another name": {ID: "dev.kith.other", Info: seal.Info, Resources: seal.Resources}, "another Info.plist": {ID: seal.ID, Info: []byte("x"), Resources: seal.Resources},
		"other resources": {ID: seal.ID, Info: seal.Info, Resources: []byte("x")}, "no bundle": {ID: seal.ID},
	} {
		if _, err := Check(signed, s); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := Check(signed[:len(signed)-1], seal); err == nil {
		t.Error("cut: no error")
	}
	if _, err := Sign([]byte("#!/bin/sh\n"), seal); err == nil {
		t.Error("a script is signed")
	}
}
