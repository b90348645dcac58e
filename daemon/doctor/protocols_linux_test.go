package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kith.dev/core/api"
)

func TestAMachineThatKnowsNoProtocolsIsFound(t *testing.T) {
	look := func(text string) (f api.Finding) {
		path := filepath.Join(t.TempDir(), "protocols")
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		protocols(path, func(is api.Finding) { f = is })
		return f
	}
	for what, text := range map[string]string{"no file": "", "comments alone": "# tcp 6\n", "half of it": "ip\t0\tIP\ntcp\t6\tTCP # transmission control protocol\n"} {
		if f := look(text); f.State != api.CheckFail || !strings.Contains(f.What, "udp, sctp") || !strings.Contains(f.Do, "netbase") {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if f := look("ip\t0\tIP\ntcp\t6\tTCP\nudp 17 UDP\nsctp\t132\tSCTP\n"); f.State != api.CheckOK {
		t.Errorf("%+v", f)
	}
}
