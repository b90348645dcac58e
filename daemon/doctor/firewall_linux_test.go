package doctor

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
)

// What `ufw status verbose` of ufw 0.36 says.
const ufwHead = "Status: active\nLogging: on (low)\nDefault: deny (incoming), allow (outgoing), disabled (routed)\nNew profiles: skip\n\n" +
	"To                         Action      From\n--                         ------      ----\n"

func TestUFWIsReadAsItSpeaks(t *testing.T) {
	doors := []door{{6450, "tcp"}, {6450, "udp"}}
	allow := []string{"ufw allow 6450/tcp", "ufw allow 6450/udp"}
	for name, tc := range map[string]struct {
		status string
		want   api.CheckState
		fix    []string
	}{
		"inactive":                 {"Status: inactive\n", api.CheckOK, nil},
		"no rules":                 {strings.SplitAfter(ufwHead, "skip\n")[0], api.CheckFail, allow},
		"ssh alone":                {ufwHead + "22/tcp                     ALLOW IN    Anywhere\n22/tcp (v6)                ALLOW IN    Anywhere (v6)\n", api.CheckFail, allow},
		"both":                     {ufwHead + "6450                       ALLOW IN    Anywhere\n", api.CheckOK, nil},
		"one of the two":           {ufwHead + "6450/tcp                   ALLOW IN    Anywhere                   # Kith\n", api.CheckFail, allow[1:]},
		"the other is refused":     {ufwHead + "6450/tcp                   ALLOW IN    Anywhere\n6450/udp                   DENY IN     Anywhere\n", api.CheckFail, nil},
		"denied, then allowed":     {ufwHead + "6450                       DENY IN     Anywhere\n6450                       ALLOW IN    Anywhere\n", api.CheckFail, nil},
		"a range":                  {ufwHead + "6000:7000/tcp              ALLOW IN    Anywhere\n22,6450/udp                LIMIT IN    Anywhere\n", api.CheckOK, nil},
		"the LAN only":             {ufwHead + "6450 on wlan0              ALLOW IN    192.168.1.0/24\n", api.CheckOK, nil},
		"everything from the LAN":  {ufwHead + "Anywhere                   ALLOW IN    192.168.1.0/24\n", api.CheckOK, nil},
		"an address of its own":    {ufwHead + "192.168.1.5 6450           ALLOW IN    Anywhere\n", api.CheckOK, nil},
		"one who is refused":       {ufwHead + "6450                       DENY IN     192.168.1.66\n6450 on wlan1              REJECT IN   Anywhere\n6450                       ALLOW IN    Anywhere\n", api.CheckOK, nil},
		"what goes out":            {ufwHead + "6450                       ALLOW OUT   Anywhere\n", api.CheckFail, allow},
		"only IPv6":                {ufwHead + "6450 (v6)                  ALLOW IN    Anywhere (v6)\n", api.CheckFail, allow},
		"all may come in":          {strings.Replace(ufwHead, "deny (incoming)", "allow (incoming)", 1), api.CheckOK, nil},
		"an application's profile": {ufwHead + "OpenSSH                    ALLOW IN    Anywhere\n", api.CheckFail, allow},
	} {
		f := judgeUFW(about{area: api.AreaNetwork}, tc.status, doors, false)
		if f.Name != "ufw" || f.State != tc.want || !slices.Equal(f.Fix, tc.fix) || f.State != api.CheckOK && f.Do == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestUFWOnALANOfIPv6: there the rules for IPv4 let nobody in.
func TestUFWOnALANOfIPv6(t *testing.T) {
	doors := []door{{6450, "tcp"}, {6450, "udp"}}
	allow := []string{"ufw allow 6450/tcp", "ufw allow 6450/udp"}
	for name, tc := range map[string]struct {
		status string
		want   api.CheckState
		fix    []string
	}{
		"both families":         {ufwHead + "6450                       ALLOW IN    Anywhere\n6450 (v6)                  ALLOW IN    Anywhere (v6)\n", api.CheckOK, nil},
		"IPv4 alone":            {ufwHead + "6450                       ALLOW IN    Anywhere\n22/tcp (v6)                ALLOW IN    Anywhere (v6)\n", api.CheckFail, allow},
		"one of the two":        {ufwHead + "6450/tcp (v6)              ALLOW IN    Anywhere (v6)\n", api.CheckFail, allow[1:]},
		"on a device":           {ufwHead + "6450 (v6) on wlan0         ALLOW IN    Anywhere (v6)\n", api.CheckOK, nil},
		"the link alone":        {ufwHead + "6450                       ALLOW IN    fe80::/10\n", api.CheckOK, nil},
		"one who is refused":    {ufwHead + "6450                       DENY IN     fe80::66\n6450 (v6)                  ALLOW IN    Anywhere (v6)\n", api.CheckOK, nil},
		"denied":                {ufwHead + "6450 (v6)                  DENY IN     Anywhere (v6)\n", api.CheckFail, nil},
		"no rules of IPv6 ever": {ufwHead + "6450                       ALLOW IN    Anywhere                   # for IPv6 later\n", api.CheckFail, nil},
		"inactive":              {"Status: inactive\n", api.CheckOK, nil},
	} {
		f := judgeUFW(about{area: api.AreaNetwork}, tc.status, doors, true)
		if f.State != tc.want || !slices.Equal(f.Fix, tc.fix) || f.State != api.CheckOK && f.Do == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// What `firewall-cmd --list-all` of firewalld 1.3 says.
func listed(target, services, ports, rich string) string {
	return "public (active)\n  target: " + target + "\n  ingress-priority: 0\n  interfaces: eth0\n  sources: \n  services: " + services + "\n  ports: " + ports +
		"\n  protocols: \n  forward: yes\n  masquerade: no\n  rich rules: \n" + rich
}

func TestFirewalldIsReadAsItSpeaks(t *testing.T) {
	doors := []door{{6450, "tcp"}, {6450, "udp"}}
	for name, tc := range map[string]struct {
		zone, text string
		want       api.CheckState
		fixes      int
	}{
		"closed":               {"public", listed("default", "dhcpv6-client ssh", "", ""), api.CheckFail, 6},
		"open":                 {"public", listed("default", "mdns ssh", "6450/tcp 6450/udp", ""), api.CheckOK, 0},
		"Fedora's workstation": {"FedoraWorkstation", listed("default", "mdns ssh", "1025-65535/udp 1025-65535/tcp", ""), api.CheckOK, 0},
		"no multicast":         {"public", listed("default", "ssh", "6450/tcp 6450/udp", ""), api.CheckFail, 2},
		"trusted":              {"trusted", listed("ACCEPT", "", "", ""), api.CheckOK, 0},
		"drop":                 {"drop", listed("DROP", "", "", ""), api.CheckFail, 0},
		"a rule of the owner":  {"public", listed("default", "mdns", "6450/udp", "\trule family=\"ipv4\" source address=\"10.0.0.0/8\" port port=\"6450\" protocol=\"tcp\" accept\n"), api.CheckOK, 0},
		"refused by a rule":    {"public", listed("default", "mdns", "6450/udp 6450/tcp", "\trule family=\"ipv4\" port port=\"6450\" protocol=\"tcp\" reject\n"), api.CheckFail, 0},
		"some are refused":     {"public", listed("default", "mdns", "6450/udp 6450/tcp", "\trule family=\"ipv4\" source address=\"10.0.0.6\" port port=\"6450\" protocol=\"tcp\" drop\n"), api.CheckOK, 0},
		"another protocol":     {"public", listed("default", "mdns", "6450/udp", "\trule family=\"ipv4\" port port=\"6450\" protocol=\"udp\" accept\n"), api.CheckFail, 2},
		"a rule for a range":   {"public", listed("default", "mdns", "6450/udp", "\trule family=\"ipv4\" port port=\"6000-7000\" protocol=\"tcp\" log prefix=\"x\" accept\n"), api.CheckOK, 0},
	} {
		f := judgeFirewalld(about{area: api.AreaNetwork}, []zone{readZone(tc.zone, tc.text)}, doors, true)
		if f.Name != "firewalld" || f.State != tc.want || len(f.Fix) != tc.fixes || f.State != api.CheckOK && f.Do == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	f := judgeFirewalld(about{}, []zone{readZone("public", listed("default", "mdns", "6450/udp", ""))}, doors, true)
	if want := []string{"firewall-cmd --zone=public --add-port=6450/tcp", "firewall-cmd --permanent --zone=public --add-port=6450/tcp"}; !slices.Equal(f.Fix, want) {
		t.Error(f.Fix)
	}
	if f := judgeFirewalld(about{}, nil, doors, true); f.State != api.CheckOK || !strings.Contains(f.What, "no LAN") {
		t.Errorf("%+v", f)
	}
	both := []zone{readZone("home", listed("default", "ssh", "6450/tcp 6450/udp", "")), readZone("public", listed("default", "mdns", "", ""))}
	if f := judgeFirewalld(about{}, both, doors, true); len(f.Fix) != 6 || !strings.HasPrefix(f.What, "firewalld blocks mdns and 6450/tcp and 6450/udp:") {
		t.Errorf("two zones: %+v", f)
	}
}

// FuzzFirewalls: what firewalls say is read without an end of kithd, and what is made of it is commands of plain words.
func FuzzFirewalls(f *testing.F) {
	f.Add("public", ufwHead+"6450/tcp                   ALLOW IN    Anywhere\n")
	f.Add("public", listed("default", "mdns", "6450/udp", "\trule family=\"ipv4\" port port=\"6450\" protocol=\"tcp\" reject\n"))
	f.Fuzz(func(t *testing.T, name, text string) {
		doors := []door{{6450, "tcp"}, {6450, "udp"}}
		found := []api.Finding{judgeUFW(about{}, text, doors, false), judgeUFW(about{}, text, doors, true), judgeFirewalld(about{}, readZones(name+"\n"+text), doors, true)}
		for _, f := range found {
			if f.State != api.CheckOK && f.Do == "" {
				t.Errorf("%+v", f)
			}
			for _, command := range f.Fix {
				if !regexp.MustCompile(`^(ufw|firewall-cmd)( [A-Za-z0-9=./_-]+)+$`).MatchString(command) {
					t.Errorf("%q", command)
				}
			}
		}
	})
}

// TestUFWIsToldByItsOwnCommand has a stand-in for ufw, which keeps its rules in a file.
func TestUFWIsToldByItsOwnCommand(t *testing.T) {
	apart(t)
	standIn(t, "ufw", `case "$1" in status) cat /usr/local/sbin/head; cat /usr/local/sbin/rules ;; allow) echo "$2  ALLOW IN  Anywhere" >> /usr/local/sbin/rules ;; *) exit 1 ;; esac`,
		map[string]string{"head": ufwHead, "rules": "22/tcp  ALLOW IN  Anywhere\n"})
	f := look(t, machine().network)["ufw"]
	if f.State != api.CheckFail {
		t.Fatalf("%+v", f)
	}
	mends(t, f)
	if f := look(t, machine().network)["ufw"]; f.State != api.CheckOK {
		t.Errorf("%+v", f)
	}
}

func TestFirewalldIsToldByItsOwnCommand(t *testing.T) {
	apart(t)
	standIn(t, "firewall-cmd", `case "$*" in --state) echo running ;; --get-zone-of-interface=eth0) echo public ;; --info-service=*) echo "  ports: 9090/tcp" ;;
--list-all-zones) echo "drop"; echo "  target: DROP"; echo "  sources: "; echo; echo "public (default, active)"; echo "  target: default"; echo "  services: mdns cockpit"
	echo "  ports: $(cat /usr/local/sbin/ports | tr '\n' ' ')"; echo "  sources: "; echo; echo "trusted"; echo "  target: ACCEPT"; echo "  sources: " ;;
*--permanent*) ;; *--add-port=*) echo "${2#--add-port=}" >> /usr/local/sbin/ports ;; *) exit 1 ;; esac`, map[string]string{"ports": "22/tcp\n"})
	f := look(t, machine().network)["firewalld"]
	if f.State != api.CheckFail || len(f.Fix) != 4 {
		t.Fatalf("%+v", f)
	}
	mends(t, f)
	if f := look(t, machine().network)["firewalld"]; f.State != api.CheckOK {
		t.Errorf("%+v", f)
	}
}
