package names

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/guestnet"
)

// Tenant is what a guest's home has here.
type Tenant struct {
	Twins     map[string]string   // the name here of a namespace, by that at home
	Services  guestnet.Services   // the address here of a service, by that at home
	Ranges    netplan.Translation // of pods, likewise
	Kept      map[netip.Addr]bool // addresses that mean here what they say: a guest of the home's has them
	APIServer string              // the twin by which guests reach home's API server; "" is none

	homes map[string]string         // of Twins, the other way
	at    map[netip.Addr]netip.Addr // of Services
}

// ready makes what answers are looked up in.
func (t *Tenant) ready() {
	t.homes, t.at = map[string]string{}, map[netip.Addr]netip.Addr{}
	for home, here := range t.Twins {
		t.homes[here] = home
	}
	for home, here := range t.Services {
		t.at[here] = home
	}
}

const (
	domain  = "cluster.local."
	reverse = ".in-addr.arpa."

	// By which name pods at home find their API server. It has a twin in namespaces here.
	apiServer, itsNamespace = "kubernetes", "default"
)

// zones end the names of services, and of pods by their addresses.
var zones = []string{".svc." + domain, ".pod." + domain}

// inside splits a name into what is before the namespace, the namespace, and the zone behind it: "web.", "shop", ".svc.cluster.local.".
func inside(name string) (before, namespace, zone string, ok bool) {
	for _, zone := range zones {
		if rest, ok := strings.CutSuffix(name, zone); ok {
			at := strings.LastIndexByte(rest, '.') + 1
			return rest[:at], rest[at:], zone, rest != ""
		}
	}
	return "", "", "", false
}

// here gives the name here of a name in lower case that a guest asks for. changed is false for one that is none of the cluster's, which is asked for as
// it is; ok for one that means nothing at home. What a guest is told of itself by the kubelet here has its namespace as that is called here, so
// that means itself.
func (t *Tenant) here(name string) (here string, changed, ok bool) {
	if at, is := addressOf(name); is {
		if to, known := t.Services[at]; known {
			return nameOf(to), true, true
		}
		if t.Kept[at] {
			return name, true, true
		}
		to, _ := t.Ranges.Here(at) // itself, if it is not in any
		return nameOf(to), true, true
	}
	if local, is := v1alpha1.ImportedName(name); is { // a guest's clusterset is that of its home
		name = local
	}
	before, namespace, zone, is := inside(name)
	if !is {
		return name, false, true
	}
	if more, is := strings.CutSuffix("."+before, "."+apiServer+"."); is && namespace == itsNamespace && zone == zones[0] {
		return strings.TrimPrefix(more+"."+kinds.APIServerAbroad+"."+t.APIServer+zone, "."), true, t.APIServer != ""
	}
	if twin, is := t.Twins[namespace]; is {
		return before + twin + zone, true, true
	}
	_, is = t.homes[namespace]
	return name, true, is
}

// home gives the name at home of a name here; false of one that is another's.
func (t *Tenant) home(name string) (home string, ok bool) {
	before, namespace, zone, is := inside(strings.ToLower(name))
	if !is {
		return name, true
	}
	at, is := t.homes[namespace]
	if !is {
		return "", false
	}
	if more, is := strings.CutSuffix("."+before, "."+kinds.APIServerAbroad+"."); is && zone == zones[0] {
		before, at = strings.TrimPrefix(more+"."+apiServer+".", "."), itsNamespace
	}
	return before + at + zone, true
}

// address gives the address at home of one here; what is none of home's stays as it is.
func (t *Tenant) address(here netip.Addr) netip.Addr {
	if home, ok := t.at[here]; ok {
		return home
	}
	home, _ := t.Ranges.Home(here) // itself, if it is not in any
	if t.Kept[home] {
		return here
	}
	return home
}

// addressOf is the address that a reverse name is of.
func addressOf(name string) (netip.Addr, bool) {
	of, is := strings.CutSuffix(name, reverse)
	parts := strings.Split(of, ".")
	slices.Reverse(parts)
	a, err := netip.ParseAddr(strings.Join(parts, "."))
	return a, is && err == nil && a.Is4()
}

func nameOf(a netip.Addr) string {
	b, text := a.As4(), ""
	for _, n := range b {
		text = strconv.Itoa(int(n)) + "." + text
	}
	return strings.TrimSuffix(text, ".") + reverse
}
