package thermal

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// tree makes a folder like Root: "acpitz 45000 critical=100000 passive=90000".
func tree(t *testing.T, zones ...string) string {
	t.Helper()
	root := t.TempDir()
	for i, z := range zones {
		dir := filepath.Join(root, "thermal_zone"+strconv.Itoa(i))
		words := strings.Fields(z)
		files := map[string]string{"type": words[0], "temp": words[1]}
		for k, trip := range words[2:] {
			kind, at, _ := strings.Cut(trip, "=")
			if kind == "mode" {
				files["mode"] = at
				continue
			}
			files["trip_point_"+strconv.Itoa(k)+"_type"], files["trip_point_"+strconv.Itoa(k)+"_temp"] = kind, at
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestWhetherAMachineIsCool(t *testing.T) {
	const cool, hot, unknown = "cool", "hot", "unknown"
	for name, c := range map[string]struct {
		zones []string
		want  string
	}{
		"no zones":                            {nil, unknown},
		"far from critical":                   {[]string{"acpitz 45000 critical=105000"}, cool},
		"near to critical":                    {[]string{"acpitz 85000 critical=105000"}, hot},
		"a degree less":                       {[]string{"acpitz 84000 critical=105000"}, cool},
		"near to where it is slowed down":     {[]string{"TCPU 80000 passive=90000 critical=110000"}, hot},
		"a little less":                       {[]string{"TCPU 79999 critical=110000 passive=90000"}, cool},
		"past the trip point of a fan":        {[]string{"acpitz 60000 active=50000 critical=105000"}, cool},
		"one of two is hot":                   {[]string{"acpitz 30000 critical=100000", "TSKN 52000 passive=55000"}, hot},
		"Intel's, whose trip points are free": {[]string{"x86_pkg_temp 60000 passive=0 passive=-274000"}, cool},
		"Intel's is hot":                      {[]string{"acpitz 30000 critical=100000", "x86_pkg_temp 81000 passive=0"}, hot},
		"a radio without trip points":         {[]string{"iwlwifi_1 99000"}, unknown},
		"a zone that is off":                  {[]string{"acpitz 99000 critical=100000 mode=disabled"}, unknown},
		"no word of the temperature":          {[]string{"acpitz x critical=100000"}, unknown},
		"what cannot be meant":                {[]string{"acpitz 9999999 critical=100000", "TCPU -5 critical=1"}, unknown},
		"what cannot be meant, and what can":  {[]string{"acpitz 9999999 critical=100000", "TCPU 40000 critical=100000"}, cool},
	} {
		is := Read(tree(t, c.zones...))
		got := map[bool]string{is.Hot != "": hot, is.Unknown != "": unknown}[true]
		if got == "" {
			got = cool
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %s", name, is, c.want)
		}
	}
	if is := Read(tree(t, "acpitz 92000 critical=100000")); is.Hot != "acpitz has 92 °C, and is cool below 80 °C" {
		t.Error(is.Hot)
	}
}
