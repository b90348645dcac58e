package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func load(t *testing.T) *Identity {
	t.Helper()
	i, err := Load(filepath.Join(t.TempDir(), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestLoadMakesAKeyOnceAndKeepsIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "identity")
	first, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID() != second.ID() || first.ID().IsZero() {
		t.Errorf("IDs %s, then %s", first.ID(), second.ID())
	}
	if string(first.Certificate().Certificate[0]) != string(second.Certificate().Certificate[0]) {
		t.Error("one key gives two certificates")
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("leftovers: %v", entries)
	}
}

func TestTwoStartsAtOnceAgreeOnOneKey(t *testing.T) {
	dir := t.TempDir()
	ids := make([]ID, 16)
	var wg sync.WaitGroup
	for n := range ids {
		wg.Go(func() {
			i, err := Load(dir)
			if err != nil {
				t.Error(err)
				return
			}
			ids[n] = i.ID()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("%s and %s", id, ids[0])
		}
	}
}

func TestLoadReadsAMountedSecret(t *testing.T) {
	made := t.TempDir()
	want, err := Load(made)
	if err != nil {
		t.Fatal(err)
	}
	// The kubelet mounts identity.key -> ..data/identity.key, ..data -> a dated directory.
	dir := t.TempDir()
	text, _ := os.ReadFile(filepath.Join(made, keyFile))
	must(t, os.Mkdir(filepath.Join(dir, "..2026"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "..2026", keyFile), text, 0o400))
	must(t, os.Symlink("..2026", filepath.Join(dir, "..data")))
	must(t, os.Symlink("..data/"+keyFile, filepath.Join(dir, keyFile)))
	got, err := Load(dir)
	if err != nil || got.ID() != want.ID() {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestLoadRefusesAndKeepsWhatIsThere(t *testing.T) {
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ecDER, _ := x509.MarshalPKCS8PrivateKey(ecKey)
	ecPEM := pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: ecDER})
	for _, c := range []struct {
		name string
		text []byte
		mode os.FileMode
		says string
	}{
		{"readable by the group", ecPEM, 0o640, "mode 0640"},
		{"readable by all", ecPEM, 0o604, "mode 0604"},
		{"empty, after a crash of someone else", nil, 0o600, "no PEM block"},
		{"not PKCS#8", pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: []byte("x")}), 0o600, "damaged key"},
		{"another kind of key", ecPEM, 0o600, "want an Ed25519 key"},
		{"huge", []byte(strings.Repeat("x", maxKeyFile+1)), 0o600, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, keyFile)
			must(t, os.WriteFile(path, c.text, c.mode))
			_, err := Load(dir)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want it to say %q and the path", err, c.says)
			}
			if kept, _ := os.ReadFile(path); string(kept) != string(c.text) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestLoadDoesNotFollowALinkOut(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if _, err := Load(outside); err != nil {
		t.Fatal(err)
	}
	must(t, os.Symlink(filepath.Join(outside, keyFile), filepath.Join(dir, keyFile)))
	if i, err := Load(dir); err == nil {
		t.Errorf("took %s from outside", i.ID())
	}
}

func TestVerify(t *testing.T) {
	alice, mallory := load(t), load(t)
	msg := []byte("kith test: ten cores until Friday")
	sig := alice.Sign(msg)
	if err := Verify(alice.Public(), alice.ID(), msg, sig); err != nil {
		t.Error(err)
	}
	var mismatch *MismatchError
	if err := Verify(mallory.Public(), alice.ID(), msg, mallory.Sign(msg)); !errors.As(err, &mismatch) || mismatch.Got != mallory.ID() {
		t.Errorf("another's key: %v", err)
	}
	for name, err := range map[string]error{
		"another's signature": Verify(alice.Public(), alice.ID(), msg, mallory.Sign(msg)),
		"changed message":     Verify(alice.Public(), alice.ID(), []byte("twenty cores"), sig),
		"cut signature":       Verify(alice.Public(), alice.ID(), msg, sig[:10]),
		"no signature":        Verify(alice.Public(), alice.ID(), msg, nil),
		"cut key":             Verify(alice.Public()[:31], alice.ID(), msg, sig),
		"no key":              Verify(ed25519.PublicKey(nil), alice.ID(), msg, sig),
	} {
		if err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
