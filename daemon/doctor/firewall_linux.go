package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/discovery"
)

// door is a port that other machines must reach.
type door struct {
	port    uint16
	network string // tcp or udp
}

func (d door) String() string { return fmt.Sprintf("%d/%s", d.port, d.network) }

// doors are those of kithd to which other laptops come.
func (m Machine) doors() (list []door) {
	for _, l := range m.listeners() {
		if l.name == "peer-api" || l.name == "wireguard" {
			list = append(list, door{l.port, l.network})
		}
	}
	return list
}

// ufw looks whether ufw(8) lets other laptops in. It is asked itself: what its rules mean is its own affair.
func (m Machine) ufw(ctx context.Context, in about, report func(api.Finding)) {
	const name = "ufw"
	if _, err := programOf(name); err != nil {
		return
	}
	text, err := output(ctx, name, "status", "verbose")
	if err != nil {
		report(in.warn(name, "ufw does not say what it lets in", err.Error(), "ufw status verbose"))
		return
	}
	report(judgeUFW(in, text, m.doors()))
}

// judgeUFW reads what `ufw status verbose` says.
func judgeUFW(in about, status string, doors []door) api.Finding {
	const name = "ufw"
	if !strings.Contains(status, "Status: active") {
		return in.ok(name, "ufw is not active")
	}
	var shut, commands []string
	meant := false
	for _, d := range doors {
		switch action, by := ufwAction(status, d); {
		case action == "ALLOW" || action == "LIMIT":
		case by:
			meant = true
			shut = append(shut, d.String())
		default:
			shut = append(shut, d.String())
			commands = append(commands, "ufw allow "+d.String())
		}
	}
	if len(shut) == 0 {
		return in.ok(name, "ufw lets other laptops in")
	}
	f := in.fail(name, "ufw blocks "+strings.Join(shut, " and ")+": other laptops cannot reach this one", "it lets in what its rules name, and they do not name this", "")
	if meant {
		f.Why, f.Do = "a rule of ufw says so", "if it is not meant: delete that rule (ufw status numbered), then ufw allow "+shut[0]
		return f
	}
	return mending(f, commands...)
}

// ufwAction gives what ufw does with packets that come in for a port, from somewhere at least, and whether a rule says so.
func ufwAction(status string, d door) (action string, byRule bool) {
	rules := false
	for line := range strings.Lines(status) {
		line = strings.TrimSpace(line)
		if policy, ok := strings.CutPrefix(line, "Default: "); ok {
			action = map[string]string{"allow": "ALLOW", "deny": "DENY", "reject": "REJECT"}[strings.Fields(policy)[0]]
		}
		if strings.HasPrefix(line, "--") {
			rules = true
			continue
		}
		if !rules || strings.Contains(line, "(v6)") {
			continue
		}
		f := strings.Fields(line)
		at := slices.IndexFunc(f, func(w string) bool { return slices.Contains([]string{"ALLOW", "DENY", "REJECT", "LIMIT"}, w) })
		if at <= 0 || at+1 < len(f) && (f[at+1] == "OUT" || f[at+1] == "FWD") || !ufwNames(f[:at], d) {
			continue
		}
		from := f[at+1:]
		if len(from) > 0 && from[0] == "IN" {
			from = from[1:]
		}
		partly := slices.Contains(f[:at], "on") || len(from) > 0 && from[0] != "Anywhere"
		if f[at] != "ALLOW" && f[at] != "LIMIT" && partly { // others still come in, or not, by another rule
			continue
		}
		return f[at], true
	}
	return action, false
}

// ufwNames reports whether the column "To" of a rule names a port: "6450", "6450/tcp", "6000:7000/udp", "22,6450/tcp",
// "192.168.1.5 6450/tcp", "6450/tcp on wlan0", "Anywhere".
func ufwNames(to []string, d door) bool {
	if on := slices.Index(to, "on"); on >= 0 {
		to = to[:on]
	}
	if len(to) == 0 {
		return false
	}
	if to[0] == "Anywhere" {
		return true
	}
	ports, network, hasNetwork := strings.Cut(to[len(to)-1], "/")
	return (!hasNetwork || network == d.network) && within(strings.Split(ports, ","), ":", d.port)
}

// within reports whether one of some ports or ranges of ports has port.
func within(ranges []string, dash string, port uint16) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		from, to, isRange := strings.Cut(text, dash)
		if !isRange {
			to = from
		}
		low, err := strconv.ParseUint(from, 10, 16)
		high, err2 := strconv.ParseUint(to, 10, 16)
		return err == nil && err2 == nil && uint64(port) >= low && uint64(port) <= high
	})
}

// firewalld looks whether firewalld lets other laptops in, in the zones of the LAN's devices.
func (m Machine) firewalld(ctx context.Context, in about, report func(api.Finding)) {
	const name, ask = "firewalld", "firewall-cmd"
	if _, err := programOf(ask); err != nil {
		return
	}
	if state, err := output(ctx, ask, "--state"); err != nil || strings.TrimSpace(state) != "running" {
		report(in.ok(name, "firewalld is not running"))
		return
	}
	devices, err := discovery.LANDevices(m.Discovery.Interfaces)
	if err != nil {
		report(in.warn(name, "the devices of the LAN are not known", err.Error(), ""))
		return
	}
	zones := map[string]string{}
	for _, device := range devices {
		zone, err := output(ctx, ask, "--get-zone-of-interface="+device)
		if err != nil {
			zone, err = output(ctx, ask, "--get-default-zone")
		}
		if zone = strings.TrimSpace(zone); err != nil || !plain(zone) || zones[zone] != "" {
			continue
		}
		if zones[zone], err = output(ctx, ask, "--zone="+zone, "--list-all"); err != nil {
			report(in.warn(name, "firewalld does not say what it lets in", err.Error(), "firewall-cmd --list-all"))
			return
		}
	}
	report(judgeFirewalld(in, zones, m.doors(), m.Discovery.LAN))
}

// judgeFirewalld reads what `firewall-cmd --list-all` says of each zone.
func judgeFirewalld(in about, zones map[string]string, doors []door, multicast bool) api.Finding {
	const name = "firewalld"
	var shut, commands []string
	meant := ""
	for zone, text := range zones {
		says := map[string][]string{}
		for line := range strings.Lines(text) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && says[key] == nil {
				says[key] = strings.Fields(value)
			}
		}
		target := strings.Join(says["target"], " ")
		if target == "ACCEPT" {
			continue
		}
		open := func(d door) bool {
			return slices.ContainsFunc(says["ports"], func(text string) bool {
				ports, network, _ := strings.Cut(text, "/")
				return network == d.network && within([]string{ports}, "-", d.port)
			})
		}
		add := func(what, option string) {
			shut = append(shut, what)
			commands = append(commands, "firewall-cmd --zone="+zone+" "+option, "firewall-cmd --permanent --zone="+zone+" "+option)
			if target == "DROP" || target == "%%REJECT%%" || zone == "drop" || zone == "block" {
				meant = zone
			}
		}
		for _, d := range doors {
			if !open(d) && !strings.Contains(text, fmt.Sprintf("port=\"%d\"", d.port)) {
				add(d.String(), "--add-port="+d.String())
			}
		}
		if mdns := (door{5353, "udp"}); multicast && !open(mdns) && !slices.Contains(says["services"], "mdns") {
			add("mdns", "--add-service=mdns")
		}
	}
	if len(shut) == 0 {
		return in.ok(name, "firewalld lets other laptops in")
	}
	f := in.fail(name, "firewalld blocks "+strings.Join(shut, " and ")+": other laptops cannot reach this one", "the zone of the LAN's device does not let it in", "")
	if meant != "" {
		f.Why, f.Do = "its device is in the zone "+meant+", which lets nothing in", "if it is not meant: put the device into another zone, such as home"
		return f
	}
	return mending(f, commands...)
}
