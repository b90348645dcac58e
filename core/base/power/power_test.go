package power

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a folder like Root: "AC: type=Mains online=1".
func tree(t *testing.T, supplies ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, s := range supplies {
		name, files, _ := strings.Cut(s, ": ")
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range strings.Fields(files) {
			file, text, _ := strings.Cut(f, "=")
			if err := os.WriteFile(filepath.Join(root, name, file), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestWherePowerComesFrom(t *testing.T) {
	for name, c := range map[string]struct {
		supplies []string
		want     State
	}{
		"a machine without batteries":     {nil, State{true, None}},
		"a desktop with a wireless mouse": {[]string{"hidpp_battery_0: type=Battery scope=Device status=Discharging capacity=5"}, State{true, None}},
		"on mains":                        {[]string{"AC: type=Mains online=1", "BAT0: type=Battery status=Charging capacity=80"}, State{true, 80}},
		"off mains":                       {[]string{"AC: type=Mains online=0", "BAT0: type=Battery status=Discharging capacity=80"}, State{false, 80}},
		"on a charger by USB":             {[]string{"AC: type=Mains online=0", "ucsi: type=USB online=1", "BAT0: type=Battery status=Charging capacity=7"}, State{true, 7}},
		"the bay is empty":                {[]string{"BAT1: type=Battery present=0"}, State{true, None}},
		"two batteries":                   {[]string{"AC: type=Mains online=0", "BAT0: type=Battery capacity=100", "BAT1: type=Battery capacity=20"}, State{false, 60}},
		"no word of the charger":          {[]string{"BAT0: type=Battery status=Discharging capacity=50"}, State{false, 50}},
		"no word of it, and it is full":   {[]string{"BAT0: type=Battery status=Full capacity=100"}, State{true, 100}},
		"one that counts energy":          {[]string{"AC: type=Mains online=0", "BAT0: type=Battery energy_now=20000000 energy_full=50000000"}, State{false, 40}},
		"one that counts charge":          {[]string{"AC: type=Mains online=0", "BAT0: type=Battery charge_now=900000 charge_full=1000000"}, State{false, 90}},
		"one that says nothing":           {[]string{"AC: type=Mains online=0", "BAT0: type=Battery"}, State{false, 0}},
		"what cannot be meant":            {[]string{"AC: type=Mains", "BAT0: type=Battery capacity=9000 energy_full=0"}, State{false, 100}},
		"a kind that nobody has heard of": {[]string{"X: type=Fusion online=1"}, State{true, None}},
	} {
		if got := Read(tree(t, c.supplies...)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := Read(filepath.Join(t.TempDir(), "missing")); got != (State{true, None}) {
		t.Errorf("where there is no such folder: %+v", got)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Read(file); got != (State{}) {
		t.Errorf("where the folder cannot be read: %+v", got)
	}
}
