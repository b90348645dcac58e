package backend

import (
	"errors"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/net/wol"
)

func TestWhetherThisMachineCanBeWoken(t *testing.T) {
	for name, tt := range map[string]struct {
		devices []wol.Device
		err     error
		state   api.CheckState
		says    []string
	}{
		"armed":                  {[]wol.Device{{Name: "eth0", Arming: wol.NotArmed}, {Name: "eth1", Arming: wol.Armed}}, nil, api.CheckOK, []string{"by eth1"}},
		"not armed":              {[]wol.Device{{Name: "eth0", Arming: wol.NotArmed}}, nil, api.CheckWarning, []string{"eth0 could wake it, and is not armed", "`sudo ethtool -s eth0 wol g`"}},
		"by a device that can't": {[]wol.Device{{Name: "eth0", Arming: wol.Cannot}}, nil, api.CheckWarning, []string{"eth0 cannot wake it", "kith share --policy lab --wake"}},
		"by Wi-Fi":               {[]wol.Device{{Name: "wlan0", Arming: wol.Unknown, WiFi: true}}, nil, api.CheckWarning, []string{"of wlan0 it is not known", "wowlan"}},
		"without a network":      {nil, nil, api.CheckWarning, []string{"it has none that is up"}},
		"without an answer":      {nil, errors.New("no kernel"), api.CheckWarning, []string{"no kernel"}},
	} {
		f := wakeable([]string{"lab"}, tt.devices, tt.err)
		text := f.What + "\n" + f.Why + "\n" + f.Do
		if f.State != tt.state {
			t.Errorf("%s: %s", name, f.State)
		}
		for _, words := range tt.says {
			if !strings.Contains(text, words) {
				t.Errorf("%s: %q lacks %q", name, text, words)
			}
		}
	}
}
