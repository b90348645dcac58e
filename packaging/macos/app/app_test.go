package app

import (
	"bytes"
	"image"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"howett.net/plist"
)

// programOf links a program that says its name, for one processor of Macs.
func programOf(t *testing.T) func(program, arch string) ([]byte, error) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26\n", "main.go": "package main\n\nvar name string\n\nfunc main() { println(name) }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func(program, arch string) ([]byte, error) {
		c := exec.Command("go", "build", "-ldflags", "-s -w -X main.name="+program, "-o", "x", ".")
		c.Dir, c.Env = dir, append(os.Environ(), "GOOS=darwin", "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return os.ReadFile(filepath.Join(dir, "x"))
	}
}

func bundle(t *testing.T) Bundle {
	t.Helper()
	var p bytes.Buffer
	if err := png.Encode(&p, image.NewNRGBA(image.Rect(0, 0, 512, 512))); err != nil {
		t.Fatal(err)
	}
	thin := programOf(t)
	b, err := Make("v1.2.3-4-gabcdef", thin, [][]byte{p.Bytes()}, []byte("license"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Make("v1.2.3-4-gabcdef", thin, [][]byte{p.Bytes()}, []byte("license"))
	if err != nil || !maps.EqualFunc(b, again, bytes.Equal) {
		t.Errorf("made twice it is not the same: %v", err)
	}
	return b
}

func TestABundleIsWholeAndWhatIsChangedInItIsFound(t *testing.T) {
	whole := bundle(t)
	if err := Check(whole); err != nil {
		t.Fatal(err)
	}
	for path := range whole {
		b := maps.Clone(whole)
		b[path] = bytes.Clone(b[path])
		b[path][len(b[path])/2] ^= 1
		if err := Check(b); (err == nil) != (path == contents+"PkgInfo") { // that one no signature covers
			t.Errorf("%s changed: %v", path, err)
		}
		delete(b, path)
		if Check(b) == nil {
			t.Errorf("without %s: no error", path)
		}
	}
	b := maps.Clone(whole)
	b[contents+"Resources/more"] = []byte("x")
	if Check(b) == nil {
		t.Error("a file more: no error")
	}
	b = maps.Clone(whole)
	b[programs+"kith"], b[programs+"kithd"] = b[programs+"kithd"], b[programs+"kith"]
	if Check(b) == nil {
		t.Error("programs exchanged: no error")
	}
}

func TestWhatTheBundleAndLaunchdAreTold(t *testing.T) {
	read := func(make func() ([]byte, error)) map[string]any {
		t.Helper()
		b, err := make()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]any{}
		if _, err := plist.Unmarshal(b, &out); err != nil || !bytes.HasPrefix(b, []byte("<?xml")) {
			t.Fatalf("%v\n%s", err, b)
		}
		return out
	}
	about := read(func() ([]byte, error) { return info("v1.2.3-4-gabcdef") })
	for key, want := range map[string]any{
		"CFBundleIdentifier": "dev.kith.Kith", "CFBundleExecutable": "kith-tray", "CFBundlePackageType": "APPL", "LSUIElement": true,
		"CFBundleShortVersionString": "1.2.3", "KithVersion": "v1.2.3-4-gabcdef", "LSMinimumSystemVersion": "13.0",
	} {
		if about[key] != want {
			t.Errorf("Info.plist has %s %v, want %v", key, about[key], want)
		}
	}
	if about["NSLocalNetworkUsageDescription"] == nil {
		t.Error("macOS keeps a program off the LAN that does not say what for")
	}
	kithd := read(agent)
	for key, want := range map[string]any{"Label": "dev.kith.kithd", "BundleProgram": "Contents/MacOS/kithd", "RunAtLoad": true} {
		if kithd[key] != want {
			t.Errorf("launchd is told %s %v, want %v", key, kithd[key], want)
		}
	}
	if again, ok := kithd["KeepAlive"].(map[string]any); !ok || again["SuccessfulExit"] != false {
		t.Errorf("who stops kithd in order has it started again: %v", kithd["KeepAlive"])
	}
}

func TestVersionsAreNumbers(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v0.4": "0.4", "v1.2.3-12-gabcdef-dirty": "1.2.3", "9537fd1": "0.0.0", "9537fd1-dirty": "0.0.0", "unknown": "0.0.0", "": "0.0.0",
	} {
		if got := number(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}

func TestAProgramThatIsMissingIsNamed(t *testing.T) {
	_, err := Make("v1", func(program, arch string) ([]byte, error) {
		return os.ReadFile(filepath.Join(t.TempDir(), arch, program))
	}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "icon") && !strings.Contains(err.Error(), "kith") {
		t.Error(err)
	}
}
