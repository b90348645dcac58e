package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/mdns"
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
	report(judgeUFW(in, text, m.doors(), onlyIPv6(m.Discovery.Interfaces)))
}

// onlyIPv6 reports whether the LAN's devices have addresses of IPv6 and none of IPv4: then other laptops come by IPv6 or not at all.
func onlyIPv6(interfaces []string) (yes bool) {
	devices, _ := mdns.LANDevices(interfaces) // none: off the network it makes no difference
	for _, name := range devices {
		link, err := net.InterfaceByName(name)
		if err != nil {
			continue
		}
		addrs, _ := link.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				return false
			}
			yes = true
		}
	}
	return yes
}

// judgeUFW reads what `ufw status verbose` says, of packets of IPv6 or of IPv4: ufw has rules for each, which it writes (v6) behind.
func judgeUFW(in about, status string, doors []door, v6 bool) api.Finding {
	const name = "ufw"
	if !strings.Contains(status, "Status: active") {
		return in.ok(name, "ufw is not active")
	}
	var shut, commands []string
	meant := false
	for _, d := range doors {
		switch action, by := ufwAction(status, d, v6); {
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
	what, why := "ufw blocks "+strings.Join(shut, " and ")+": other laptops cannot reach this one", "it lets in what its rules name, and they do not name this"
	if v6 {
		why += "; the LAN has IPv6 alone, for which only rules marked (v6) hold"
	}
	if meant {
		return in.fail(name, what, "a rule of ufw says so", "if it is not meant: delete that rule (ufw status numbered), then ufw allow "+shut[0])
	}
	f := mending(in.fail(name, what, why, ""), commands...)
	if v6 && !strings.Contains(status, "(v6)") { // it has none for IPv6, and may be told not to: then its command changes nothing for them
		f.Do, f.Fix = "see that /etc/default/ufw has IPV6=yes, then: ufw reload; "+f.Do, nil
	}
	return f
}

// ofIPv6 reports whether a rule that ufw shows is of IPv6.
func ofIPv6(fields []string) bool {
	return slices.ContainsFunc(fields, func(word string) bool {
		address, _, _ := strings.Cut(word, "/")
		ip, err := netip.ParseAddr(address)
		return word == "(v6)" || err == nil && ip.Is6()
	})
}

// ufwAction gives what ufw does with packets of IPv6, or of IPv4, that come in for a port, from somewhere at least, and whether a rule says so.
func ufwAction(status string, d door, v6 bool) (action string, byRule bool) {
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
		rule, _, _ := strings.Cut(line, " # ") // behind it is what the owner notes
		f := strings.Fields(rule)
		if !rules || ofIPv6(f) != v6 {
			continue
		}
		f = slices.DeleteFunc(f, func(word string) bool { return word == "(v6)" })
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
	devices, err := mdns.LANDevices(m.Discovery.Interfaces)
	if err != nil {
		report(in.warn(name, "the devices of the LAN are not known", err.Error(), "look again as root: sudo kith doctor"))
		return
	}
	say := func(args ...string) string {
		var text string
		if err == nil {
			text, err = output(ctx, append([]string{ask}, args...)...)
		}
		return text
	}
	all := readZones(say("--list-all-zones")) // at once: each call takes a while
	var zones []zone
	for _, device := range devices {
		at, none := output(ctx, ask, "--get-zone-of-interface="+device)
		if none != nil {
			at = say("--get-default-zone")
		}
		i := slices.IndexFunc(all, func(z zone) bool { return z.name == strings.TrimSpace(at) })
		if i >= 0 && !slices.ContainsFunc(zones, func(z zone) bool { return z.name == all[i].name }) {
			zones = append(zones, all[i])
		}
	}
	doors, multicast := m.doors(), m.Discovery.LAN
	// What the owner lets in may be let in by where it comes from, or have a name.
	for _, z := range all {
		if shut, _ := z.shut(doors, multicast); len(z.sources) > 0 && len(shut) == 0 && err == nil {
			report(in.ok(name, "firewalld lets other laptops in, by its zone %s", z.name))
			return
		}
	}
	for i := range zones {
		for _, service := range zones[i].services {
			if plain(service) && !slices.Contains([]string{"mdns", "ssh", "dhcpv6-client"}, service) {
				zones[i].ports = append(zones[i].ports, readZone("", say("--info-service="+service)).ports...)
			}
		}
	}
	if err != nil {
		report(in.warn(name, "firewalld does not say what it lets in", err.Error(), "firewall-cmd --list-all-zones"))
		return
	}
	report(judgeFirewalld(in, zones, doors, multicast))
}

// zone is what firewalld does with what comes in by a device.
type zone struct {
	name, target             string
	ports, services, sources []string
	rich                     []string // rules, a line each
}

// readZones reads what `firewall-cmd --list-all-zones` says: zones, each with its name in a line of its own, and what is about it indented. One
// whose name is more than a word is left out.
func readZones(text string) (zones []zone) {
	var name string
	var about strings.Builder
	end := func() {
		if plain(name) {
			zones = append(zones, readZone(name, about.String()))
		}
		about.Reset()
	}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 && line[0] != ' ' && line[0] != '\t' {
			end()
			name = fields[0]
			continue
		}
		about.WriteString(line)
	}
	end()
	return zones
}

// readZone reads what it says of one, or `--info-service` of a service.
func readZone(name, text string) zone {
	z := zone{name: name}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, ":")
		switch {
		case strings.HasPrefix(line, "rule "):
			z.rich = append(z.rich, line)
		case key == "target":
			z.target = strings.TrimSpace(value)
		case key == "ports":
			z.ports = append(z.ports, strings.Fields(value)...)
		case key == "sources":
			z.sources = append(z.sources, strings.Fields(value)...)
		case key == "services":
			z.services = append(z.services, strings.Fields(value)...)
		}
	}
	return z
}

// opens reports whether what the owner set up lets a port in, from somewhere at least, and whether a rule of theirs shuts it to all.
func (z zone) opens(d door) (open, shut bool) {
	for _, text := range z.ports {
		ports, network, _ := strings.Cut(text, "/")
		if network == d.network && within([]string{ports}, "-", d.port) {
			open = true
		}
	}
	for _, rule := range z.rich {
		_, after, found := strings.Cut(rule, `port port="`)
		ports, after, _ := strings.Cut(after, `"`)
		if !found || !within([]string{ports}, "-", d.port) || !strings.Contains(after, `protocol="`+d.network+`"`) {
			continue
		}
		partly := strings.Contains(rule, "source ")
		switch {
		case strings.Contains(after, " accept"):
			open = true
		case !partly && (strings.Contains(after, " reject") || strings.Contains(after, " drop")): // which come before what accepts
			return false, true
		}
	}
	return open, false
}

// shut are the doors that the zone keeps closed, with the option that opens each. One that has no option is closed by a rule of the owner's.
func (z zone) shut(doors []door, multicast bool) (what, options []string) {
	if z.target == "ACCEPT" {
		return nil, nil
	}
	for _, d := range doors {
		switch open, by := z.opens(d); {
		case by:
			what, options = append(what, d.String()), append(options, "")
		case !open:
			what, options = append(what, d.String()), append(options, "--add-port="+d.String())
		}
	}
	if open, by := z.opens(door{5353, "udp"}); multicast && !open && !slices.Contains(z.services, "mdns") {
		option := "--add-service=mdns"
		if by {
			option = ""
		}
		what, options = append(what, "mdns"), append(options, option)
	}
	return what, options
}

// judgeFirewalld says what the zones of the LAN's devices keep closed.
func judgeFirewalld(in about, zones []zone, doors []door, multicast bool) api.Finding {
	const name = "firewalld"
	if len(zones) == 0 {
		return in.ok(name, "firewalld runs, and there is no LAN now for it to keep out")
	}
	var shut, commands []string
	why, do := "the zone of the LAN's device does not let it in", ""
	for _, z := range zones {
		what, options := z.shut(doors, multicast)
		for i, option := range options {
			if !slices.Contains(shut, what[i]) {
				shut = append(shut, what[i])
			}
			switch {
			case z.target == "DROP" || z.target == "%%REJECT%%" || z.name == "drop" || z.name == "block":
				why, do = "its device is in the zone "+z.name+", which lets nothing in", "if it is not meant: put the device into another zone, such as home"
			case option == "":
				why, do = "a rule of the zone "+z.name+" says so", "if it is not meant: remove it (firewall-cmd --zone="+z.name+" --list-rich-rules)"
			default:
				commands = append(commands, "firewall-cmd --zone="+z.name+" "+option, "firewall-cmd --permanent --zone="+z.name+" "+option)
			}
		}
	}
	if len(shut) == 0 {
		return in.ok(name, "firewalld lets other laptops in")
	}
	what := "firewalld blocks " + strings.Join(shut, " and ") + ": other laptops cannot reach this one"
	if slices.Equal(shut, []string{"mdns"}) {
		what = "firewalld blocks mdns: this laptop does not find others, nor they this one"
	}
	if do != "" {
		return in.fail(name, what, why, do)
	}
	return mending(in.fail(name, what, why, ""), commands...)
}
