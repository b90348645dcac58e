package backend

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
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

// What is said of waking is so now: a provider's sentence of its last count would still say so days later.
func TestHowOftenALaptopWasWokenIsOfNow(t *testing.T) {
	now := time.Now()
	is := &v1alpha1.WakeStatus{Message: "as it stands", Times: []metav1.Time{{Time: now.Add(-23 * time.Hour)}, {Time: now.Add(-time.Hour)}}}
	for what, tt := range map[string]struct {
		role  v1alpha1.Role
		is    *v1alpha1.WakeStatus
		later time.Duration
		times int32
		said  string
	}{
		"never, here":          {v1alpha1.RoleProvider, nil, 0, 0, ""},
		"never, at home":       {v1alpha1.RoleConsumer, nil, 0, 0, ""},
		"here":                 {v1alpha1.RoleProvider, is, 0, 2, ""},
		"here, hours later":    {v1alpha1.RoleProvider, is, 2 * time.Hour, 1, ""},
		"at home":              {v1alpha1.RoleConsumer, is, 0, 2, "as it stands"},
		"at home, a day later": {v1alpha1.RoleConsumer, is, 24 * time.Hour, 0, "as it stands"},
	} {
		ctr := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{Role: tt.role}, Status: v1alpha1.ContractStatus{Wake: tt.is}}
		if times, said := woken(ctr, now.Add(tt.later)); times != tt.times || said != tt.said {
			t.Errorf("%s: %d, %q", what, times, said)
		}
	}
}
