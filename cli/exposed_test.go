package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"kith.dev/cli/program"
	"kith.dev/core/api"
)

func TestStatusSaysWhatIsOpenToTheLAN(t *testing.T) {
	for _, tt := range []struct {
		exposed *api.Exposed
		says    string
	}{
		{nil, ""},
		{&api.Exposed{To: "lan", Addresses: []string{"192.0.2.11", "198.51.100.7"}}, "services to the LAN, at 192.0.2.11 and 198.51.100.7\n"},
		{&api.Exposed{To: "lan"}, "services to the LAN, this machine has no IPv4 address on a LAN\n"},
	} {
		var out bytes.Buffer
		p := commands{&program.Program{Env: program.Env{Now: time.Now, Getenv: func(string) string { return "" }}}}
		p.showStatus(&out, api.Status{Exposed: tt.exposed})
		if got := out.String(); !strings.Contains(got, tt.says) || strings.Contains(got, "Exposed") != (tt.exposed != nil) {
			t.Errorf("%+v: %s", tt.exposed, got)
		}
	}
}
