package gateway

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyIsMadeOnceAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wg", "key")
	a, err := LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	b, err := LoadKey(path)
	if err != nil || a != b {
		t.Errorf("read back another key, %v", err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("a damaged key: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestPublicKey uses the vector of RFC 7748, section 6.1.
func TestPublicKey(t *testing.T) {
	k, err := ParsePrivateKey("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=")
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Public().String(); got != "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=" {
		t.Error(got)
	}
}

func TestKeyText(t *testing.T) {
	priv, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	if k, err := ParseKey(priv.Public().String()); err != nil || k != priv.Public() {
		t.Error(k, err)
	}
	if k := (Key{}); !k.IsZero() || k.String() != "" {
		t.Error(k)
	}
	for _, bad := range []string{"", "AAAA", strings.Repeat("A", 43) + "=", strings.Repeat("!", 44)} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("key", "key", priv)
	fmt.Fprintf(&log, "%v %+v %s %#v", priv, priv, priv, Config{PrivateKey: priv})
	if s := log.String(); strings.Contains(s, priv.hex()[:8]) || strings.Contains(s, fmt.Sprint(priv.bytes[:2])[1:]) || strings.Count(s, "(private key)") != 5 {
		t.Errorf("the private key is shown: %s", s)
	}
}
