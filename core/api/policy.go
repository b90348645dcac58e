package api

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PodSecurity is a level of the Kubernetes pod security standards.
type PodSecurity string

// The levels.
const (
	PodSecurityRestricted PodSecurity = "restricted"
	PodSecurityBaseline   PodSecurity = "baseline"
	PodSecurityPrivileged PodSecurity = "privileged"
)

// DefaultPolicy is the name of the policy that `kith share` works on when none is named; it is for every peer.
const DefaultPolicy = "default"

// Policy is a view of a SharingPolicy: what is offered to whom.
type Policy struct {
	Name string `json:"name"`
	// Peers are IDs, or names of peers that were accepted; Selector is a label selector on Peer objects ("trust=family").
	// Both empty: every peer.
	Peers    List[string] `json:"peers"`
	Selector string       `json:"selector,omitempty"`
	// Amounts are per resource, absolute ("4Gi") or a part of what the machine has ("50%"), for all peers under
	// this policy together. What is not named is not offered.
	Amounts Resources `json:"amounts"`
	// Reserve stays free for the owner, beside what the owner's pods request: nothing that is offered under this policy is taken of it.
	Reserve Resources `json:"reserve,omitempty"`
	// Prices are per resource, for one unit and hour of what peers' pods request ("0.02 EUR"), all in one currency. What is not named is free.
	Prices      map[string]string `json:"prices,omitempty"`
	AutoAccept  bool              `json:"autoAccept"`
	PodSecurity PodSecurity       `json:"podSecurity"`
	// Paused: nothing new is accepted under this policy; contracts in force stay.
	Paused bool `json:"paused"`
	// MaxPerPeer bounds what one peer may have of Amounts; MaxPeers, how many peers may hold contracts under the policy at once, 0: any number.
	MaxPerPeer Resources `json:"maxPerPeer,omitempty"`
	MaxPeers   int32     `json:"maxPeers,omitempty"`
	// Hours are those in which something is offered, by the clocks of TimeZone, or of this machine where that is ""; none: always.
	Hours    List[Hours] `json:"hours,omitempty"`
	TimeZone string      `json:"timeZone,omitempty"`
	// OnMains: something new is offered while this machine is on mains alone; BatteryAbove: while its batteries are fuller than so many per cent, 0:
	// however full they are.
	OnMains      bool  `json:"onMains,omitempty"`
	BatteryAbove int32 `json:"batteryAbove,omitempty"`
	// IdleFor: when nobody has used its desktop for so long alone, from a minute to a day, as a duration ("10m"); "": no such condition. NotMetered: while
	// its network is not paid for by the amount alone.
	IdleFor    string `json:"idleFor,omitempty"`
	NotMetered bool   `json:"notMetered,omitempty"`
	// Cool: while none of its thermal zones is near to where the kernel slows it down alone.
	Cool bool `json:"cool,omitempty"`
	// Catalogues are the peers who may list what this policy would offer to somebody new, as IDs, or names of peers that were accepted.
	Catalogues List[string] `json:"catalogues,omitempty"`
	// NoInternet: guests under this policy may not use this machine's way to the internet.
	NoInternet bool `json:"noInternet,omitempty"`
	// NoTunnel: contracts that are signed from now on are without a network between the clusters.
	NoTunnel bool `json:"noTunnel,omitempty"`
	// Direct: guests under this policy may meet those of their home at other providers by a tunnel between the two, instead of by way of home.
	Direct bool `json:"direct,omitempty"`
	// Bandwidth bounds what guests of all peers under this policy together get and send by the tunnels and the internet.
	Bandwidth Bandwidth `json:"bandwidth,omitzero"`
	// SameName: peers under this policy may keep the names of their namespaces here, except reserved ones.
	SameName bool `json:"sameName,omitempty"`
	// Services are namespaces, by name or with * for any characters, in which this machine and peers under this policy have services in common, if
	// those say so too: what a ServiceExport names in one is imported by the other.
	Services List[string] `json:"services,omitempty"`
	// DeviceRuntimeClass is the RuntimeClass of guests that ask for devices; "" is that of all guests.
	DeviceRuntimeClass string `json:"deviceRuntimeClass,omitempty"`
	// KeepVolumes is how long the data of peers' volumes is kept after the end of a contract that is signed from now on, from an hour to a year, as a
	// duration ("720h"); "" is seven days.
	KeepVolumes string `json:"keepVolumes,omitempty"`
	// Notice is how long before it peers are told that what a contract in force grants them is lowered, from 10s to 30d, as a duration ("24h0m0s"); ""
	// is that nothing is lowered before a renewal.
	Notice string `json:"notice,omitempty"`
	// Wake is how often within 24 hours each peer may wake this machine when it is suspended, by contracts that are signed from now on; 0 is never.
	Wake int32 `json:"wake,omitempty"`
	// Reoffer: peers may offer on to others what they are granted by contracts that are signed from now on.
	Reoffer bool `json:"reoffer,omitempty"`
	// ReofferFrom are providers of this machine, by IDs or by names of peers that were accepted, or * for all: what they grant, if their contracts allow it,
	// is offered on under this policy.
	ReofferFrom List[string] `json:"reofferFrom,omitempty"`
	// Each: peers under this policy see each of them as a node of its own.
	Each bool `json:"each,omitempty"`
	// Margin is what is added to the prices of what is offered on ("10%"); "" is that prices are Prices alone.
	Margin string `json:"margin,omitempty"`
	// Names are those that IDs in Peers and ReofferFrom have here, by ID. It is not set, only shown, and so are Offered and Notes.
	Names map[string]string `json:"names,omitempty"`
	// Offered is what Amounts come to on this machine, before what is promised to peers; empty while that is not known.
	Offered Resources `json:"offered,omitempty"`
	// Notes are sentences on what does not come to what it reads ("cpu 900 is more than this laptop has: …").
	Notes []string `json:"notes,omitempty"`
	// Generation counts the changes of the policy. It is not set either.
	Generation int64 `json:"generation,omitempty"`
	// Changed says in words what a change was, or would be; "" when nothing was otherwise. Only in the answer to PolicyChange, and to undo.
	Changed string `json:"changed,omitempty"`
}

// ShareOf gives the amounts that offer one share ("50%") of what every machine has.
func ShareOf(share string) Resources {
	return Resources{CPU: share, Memory: share, Pods: share, EphemeralStorage: share}
}

// PolicyChange is the body of the call that changes a policy, or makes it. What is left out stays as it is.
type PolicyChange struct {
	// Amounts are merged by name; "" takes a resource out of the map.
	Amounts map[string]string `json:"amounts,omitempty"`
	// OnlyAmounts makes Amounts the whole map, instead of merging.
	Reserve     *Resources `json:"reserve,omitempty"`    // the whole of it
	MaxPerPeer  *Resources `json:"maxPerPeer,omitempty"` // the whole of it
	MaxPeers    *int32     `json:"maxPeers,omitempty"`   // 0: any number
	OnlyAmounts bool       `json:"onlyAmounts,omitempty"`
	// Prices are merged by name; "" takes one out of the map.
	Prices map[string]string `json:"prices,omitempty"`
	// OnlyPrices makes Prices the whole map, instead of merging.
	OnlyPrices  bool          `json:"onlyPrices,omitempty"`
	Peers       *List[string] `json:"peers,omitempty"`
	Selector    *string       `json:"selector,omitempty"`
	AutoAccept  *bool         `json:"autoAccept,omitempty"`
	PodSecurity *PodSecurity  `json:"podSecurity,omitempty"`
	Paused      *bool         `json:"paused,omitempty"`
	NoInternet  *bool         `json:"noInternet,omitempty"`
	NoTunnel    *bool         `json:"noTunnel,omitempty"`
	Direct      *bool         `json:"direct,omitempty"`
	Bandwidth   *Bandwidth    `json:"bandwidth,omitempty"` // the whole of it
	SameName    *bool         `json:"sameName,omitempty"`
	Services    *List[string] `json:"services,omitempty"`
	Catalogues  *List[string] `json:"catalogues,omitempty"`
	Hours       *List[Hours]  `json:"hours,omitempty"`
	TimeZone    *string       `json:"timeZone,omitempty"`
	OnMains     *bool         `json:"onMains,omitempty"`
	// BatteryAbove: 0 takes the condition away.
	BatteryAbove *int32 `json:"batteryAbove,omitempty"`
	// IdleFor: "" takes the condition away.
	IdleFor    *string `json:"idleFor,omitempty"`
	NotMetered *bool   `json:"notMetered,omitempty"`
	Cool       *bool   `json:"cool,omitempty"`
	// Generation makes the change only if the policy is still at that one: CodeConflict else. 0: at any.
	Generation int64 `json:"generation,omitempty"`

	DeviceRuntimeClass *string `json:"deviceRuntimeClass,omitempty"`
	KeepVolumes        *string `json:"keepVolumes,omitempty"`
	Notice             *string `json:"notice,omitempty"`
	Wake               *int32  `json:"wake,omitempty"`

	Reoffer     *bool         `json:"reoffer,omitempty"`
	ReofferFrom *List[string] `json:"reofferFrom,omitempty"`
	Each        *bool         `json:"each,omitempty"`
	Margin      *string       `json:"margin,omitempty"`
}

// Apply gives p with the change made; p itself is left alone.
func (c PolicyChange) Apply(p Policy) Policy {
	set(&p.Peers, c.Peers)
	set(&p.Selector, c.Selector)
	set(&p.AutoAccept, c.AutoAccept)
	set(&p.PodSecurity, c.PodSecurity)
	set(&p.Paused, c.Paused)
	set(&p.NoInternet, c.NoInternet)
	set(&p.NoTunnel, c.NoTunnel)
	set(&p.Direct, c.Direct)
	set(&p.Bandwidth, c.Bandwidth)
	set(&p.SameName, c.SameName)
	set(&p.Services, c.Services)
	set(&p.Catalogues, c.Catalogues)
	set(&p.Hours, c.Hours)
	set(&p.TimeZone, c.TimeZone)
	set(&p.OnMains, c.OnMains)
	set(&p.BatteryAbove, c.BatteryAbove)
	set(&p.IdleFor, c.IdleFor)
	set(&p.NotMetered, c.NotMetered)
	set(&p.Cool, c.Cool)
	set(&p.Reserve, c.Reserve)
	set(&p.MaxPerPeer, c.MaxPerPeer)
	set(&p.MaxPeers, c.MaxPeers)
	set(&p.DeviceRuntimeClass, c.DeviceRuntimeClass)
	set(&p.KeepVolumes, c.KeepVolumes)
	set(&p.Notice, c.Notice)
	set(&p.Wake, c.Wake)
	set(&p.Reoffer, c.Reoffer)
	set(&p.ReofferFrom, c.ReofferFrom)
	if set(&p.Each, c.Each); c.Each == nil && len(p.ReofferFrom) == 0 {
		p.Each = false // there is nobody left to be seen
	}
	set(&p.Margin, c.Margin)
	p.Amounts = merged(p.Amounts, c.Amounts, c.OnlyAmounts)
	p.Prices = merged(p.Prices, c.Prices, c.OnlyPrices)
	return p
}

// merged is a map with others put over it, or in its place; those that are "" are taken out.
func merged(was, is map[string]string, only bool) map[string]string {
	now := map[string]string{}
	if !only {
		maps.Copy(now, was)
	}
	maps.Copy(now, is)
	maps.DeleteFunc(now, func(_, text string) bool { return text == "" })
	return now
}

// Undo is the change that makes of the policy is, and of no later one, what it was.
func (is Policy) Undo(was Policy) PolicyChange {
	change := was.Restore()
	change.Generation = is.Generation
	return change
}

// Restore is the change that makes of any policy what p is.
func (p Policy) Restore() PolicyChange {
	return PolicyChange{
		Amounts: p.Amounts, OnlyAmounts: true, Prices: p.Prices, OnlyPrices: true, Peers: &p.Peers, Selector: &p.Selector, AutoAccept: &p.AutoAccept, PodSecurity: &p.PodSecurity,
		Paused: &p.Paused, NoInternet: &p.NoInternet, NoTunnel: &p.NoTunnel, Direct: &p.Direct, Bandwidth: &p.Bandwidth, SameName: &p.SameName, Services: &p.Services, DeviceRuntimeClass: &p.DeviceRuntimeClass,
		Hours: &p.Hours, TimeZone: &p.TimeZone, Reserve: &p.Reserve, MaxPerPeer: &p.MaxPerPeer, MaxPeers: &p.MaxPeers,
		OnMains: &p.OnMains, BatteryAbove: &p.BatteryAbove, IdleFor: &p.IdleFor, NotMetered: &p.NotMetered, Cool: &p.Cool,
		KeepVolumes: &p.KeepVolumes, Notice: &p.Notice, Wake: &p.Wake, Catalogues: &p.Catalogues, Reoffer: &p.Reoffer, ReofferFrom: &p.ReofferFrom, Each: &p.Each, Margin: &p.Margin,
	}
}

// Since says in words what is otherwise than it was: "50% → nothing", "cpu 2 → 4, requests are accepted without asking"; "" when nothing is.
func (p Policy) Since(was Policy) string {
	var parts []string
	if before, now := was.offers(), p.offers(); before == "" || now == "" || before == now && before != nothing {
		all := Resources{}
		maps.Copy(all, p.Amounts)
		for name := range was.Amounts {
			all[name] = cmp.Or(all[name], "0")
		}
		for _, name := range all.Names() {
			if old := cmp.Or(was.Amounts[name], "0"); old != all[name] {
				parts = append(parts, fmt.Sprintf("%s %s → %s", name, old, all[name]))
			}
		}
	} else if before != now {
		parts = append(parts, before+" → "+now)
	}
	parts = append(parts, pricesSince(was.Prices, p.Prices)...)
	for _, word := range []struct {
		was, is bool
		yes, no string
	}{
		{was.Paused, p.Paused, "paused", "not paused any more"},
		{was.AutoAccept, p.AutoAccept, "requests are accepted without asking", "requests are asked about"},
		{was.OnMains, p.OnMains, "only on mains", "on battery, too"},
		{was.Cool, p.Cool, "only while this machine is cool", "while this machine is hot, too"},
		{was.NotMetered, p.NotMetered, "only where the network is not metered", "where the network is metered, too"},
		{was.NoInternet, p.NoInternet, "guests may not use the way to the internet", "guests may use the way to the internet"},
		{was.NoTunnel, p.NoTunnel, "new contracts are without a network between the clusters", "new contracts have a network between the clusters"},
		{was.Direct, p.Direct, "guests may meet directly those at other providers", "guests meet those at other providers by way of their home"},
		{was.Reoffer, p.Reoffer, "peers may offer on what they are granted", "peers may not offer on what they are granted"},
		{was.Each, p.Each, "each provider is a node of its own to peers", "providers are one node to peers"},
		{was.SameName, p.SameName, "namespaces may keep their names", "namespaces may not keep their names"},
	} {
		if word.was != word.is {
			parts = append(parts, map[bool]string{true: word.yes, false: word.no}[word.is])
		}
	}
	if was.PodSecurity != p.PodSecurity {
		parts = append(parts, fmt.Sprintf("pod security %s → %s", was.PodSecurity, p.PodSecurity))
	}
	if was.DeviceRuntimeClass != p.DeviceRuntimeClass {
		parts = append(parts, fmt.Sprintf("runtime class of devices %s → %s", cmp.Or(was.DeviceRuntimeClass, "none"), cmp.Or(p.DeviceRuntimeClass, "none")))
	}
	if was.KeepVolumes != p.KeepVolumes {
		parts = append(parts, fmt.Sprintf("volumes are kept after the end for %s → %s", was.keeps(), p.keeps()))
	}
	if was.Notice != p.Notice {
		parts = append(parts, fmt.Sprintf("notice before contracts are lowered %s → %s", was.notice(), p.notice()))
	}
	if was.Wake != p.Wake {
		parts = append(parts, fmt.Sprintf("a peer may wake this machine %s → %s", WakeWords(was.Wake), WakeWords(p.Wake)))
	}
	if !slices.Equal(was.Services, p.Services) {
		parts = append(parts, fmt.Sprintf("services in common in namespaces %s → %s", cmp.Or(strings.Join(was.Services, ","), "none"), cmp.Or(strings.Join(p.Services, ","), "none")))
	}
	if !slices.Equal(was.Catalogues, p.Catalogues) {
		parts = append(parts, fmt.Sprintf("listed at %s → %s", cmp.Or(strings.Join(was.Catalogues, ","), "nobody's"), cmp.Or(strings.Join(p.Catalogues, ","), "nobody's")))
	}
	if !slices.Equal(was.ReofferFrom, p.ReofferFrom) {
		parts = append(parts, fmt.Sprintf("offered on from %d providers → %d", len(was.ReofferFrom), len(p.ReofferFrom)))
	}
	if was.Margin != p.Margin {
		parts = append(parts, fmt.Sprintf("margin on what is offered on %s → %s", cmp.Or(was.Margin, "none"), cmp.Or(p.Margin, "none")))
	}
	if before, now := was.Bandwidth.String(), p.Bandwidth.String(); before != now {
		parts = append(parts, fmt.Sprintf("bandwidth of guests %s → %s", cmp.Or(before, "any"), cmp.Or(now, "any")))
	}
	if before, now := was.Reserve.String(), p.Reserve.String(); before != now {
		parts = append(parts, fmt.Sprintf("reserve %s → %s", cmp.Or(before, nothing), cmp.Or(now, nothing)))
	}
	if before, now := was.MaxPerPeer.String(), p.MaxPerPeer.String(); before != now {
		parts = append(parts, fmt.Sprintf("most per peer %s → %s", cmp.Or(before, "all"), cmp.Or(now, "all")))
	}
	if was.MaxPeers != p.MaxPeers {
		parts = append(parts, fmt.Sprintf("most peers %s → %s", most(was.MaxPeers), most(p.MaxPeers)))
	}
	if was.BatteryAbove != p.BatteryAbove {
		parts = append(parts, fmt.Sprintf("only with batteries above %d%% → %d%%", was.BatteryAbove, p.BatteryAbove))
	}
	if before, now := was.IdleWords(), p.IdleWords(); before != now {
		parts = append(parts, fmt.Sprintf("only when idle for %s → %s", cmp.Or(before, "no time"), cmp.Or(now, "no time")))
	}
	if before, now := HoursWords(was.Hours, was.TimeZone), HoursWords(p.Hours, p.TimeZone); before != now {
		parts = append(parts, fmt.Sprintf("hours %s → %s", cmp.Or(before, "always"), cmp.Or(now, "always")))
	}
	if was.Selector != p.Selector || !slices.Equal(was.Peers, p.Peers) {
		parts = append(parts, "for other peers")
	}
	return strings.Join(parts, ", ")
}

func most(peers int32) string {
	if peers == 0 {
		return "any"
	}
	return fmt.Sprint(peers)
}

// keeps is KeepVolumes in words.
func (p Policy) keeps() string {
	d, err := time.ParseDuration(cmp.Or(p.KeepVolumes, "168h"))
	if err != nil {
		return p.KeepVolumes
	}
	return Span(d)
}

// notice is Notice in words.
func (p Policy) notice() string {
	d, err := time.ParseDuration(p.Notice)
	if err != nil {
		return cmp.Or(p.Notice, "none")
	}
	return Span(d)
}

// WakeWords is in words how often a machine may be woken: "3/day".
func WakeWords(times int32) string {
	if times == 0 {
		return "never"
	}
	return fmt.Sprintf("%d/day", times)
}

// ParseWake reads how often a machine may be woken: "3/day" or "3"; "" is never.
func ParseWake(s string) (int32, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "/day"), 10, 32)
	if err != nil || n < 0 || n > MaxWake {
		return 0, Invalid("wake", s, wakeAllowed)
	}
	return int32(n), nil
}

// MaxWake bounds how often a machine may be woken within a day (contract.MaxWake).
const MaxWake = 24

var wakeAllowed = fmt.Sprintf("a number of times a day from 1/day to %d/day, or 0 for never", MaxWake)

// IdleWords is IdleFor in words; "" without it.
func (p Policy) IdleWords() string {
	d, err := time.ParseDuration(p.IdleFor)
	if err != nil {
		return p.IdleFor
	}
	return Span(d)
}

// nothing is what a policy without amounts offers, or with none but 0%.
const nothing = "nothing"

// offers says what part of all that every machine has a policy offers; "" when that is no one part.
func (p Policy) offers() string {
	share := p.Amounts.Share()
	switch {
	case len(p.Amounts) == 0 || share == "0%":
		return nothing
	case maps.Equal(p.Amounts, ShareOf(share)):
		return share
	}
	return ""
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

var runtimeClass = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`)

// Check says whether the policy is well formed; the error is an *Error with CodeInvalid and the field.
func (p Policy) Check() error {
	switch p.PodSecurity {
	case "", PodSecurityRestricted, PodSecurityBaseline, PodSecurityPrivileged:
	default:
		return Invalid("podSecurity", string(p.PodSecurity), "restricted, baseline or privileged")
	}
	if len(p.DeviceRuntimeClass) > 63 || !runtimeClass.MatchString(p.DeviceRuntimeClass) {
		return Invalid("deviceRuntimeClass", p.DeviceRuntimeClass, "the name of a RuntimeClass, such as nvidia: a-z, 0-9 and -")
	}
	if err := checkHours("hours", p.Hours); err != nil {
		return err
	}
	if len(p.TimeZone) > 64 || !timeZone.MatchString(p.TimeZone) {
		return Invalid("timeZone", p.TimeZone, "the name of a time zone, such as Europe/Berlin")
	}
	if d, err := time.ParseDuration(cmp.Or(p.KeepVolumes, "168h")); err != nil || d < time.Hour || d > 365*24*time.Hour {
		return Invalid("keepVolumes", p.KeepVolumes, "a time from 1h to 365d, such as 30d")
	}
	if d, err := time.ParseDuration(cmp.Or(p.Notice, "24h")); err != nil || d < 10*time.Second || d > 30*24*time.Hour {
		return Invalid("notice", p.Notice, "a time from 10s to 30d, such as 24h")
	}
	if p.Wake < 0 || p.Wake > MaxWake {
		return Invalid("wake", fmt.Sprint(p.Wake), wakeAllowed)
	}
	if err := p.Bandwidth.check(); err != nil {
		return err
	}
	for _, s := range p.Services {
		if len(s) > 63 || !namespaces.MatchString(s) {
			return Invalid("services", s, "names of namespaces, with commas between them: a-z, 0-9, -, and * for any characters")
		}
	}
	if len(p.Services) > maxServices {
		return Invalid("services", fmt.Sprint(len(p.Services)), fmt.Sprintf("at most %d namespaces", maxServices))
	}
	if len(p.Catalogues) > maxCatalogues {
		return Invalid("catalogues", fmt.Sprint(len(p.Catalogues)), fmt.Sprintf("at most %d peers", maxCatalogues))
	}
	if _, ok := ParseMargin(p.Margin); p.Margin != "" && !ok {
		return Invalid("margin", p.Margin, MarginAllowed)
	}
	if p.Reoffer && len(p.ReofferFrom) > 0 {
		return Invalid("reoffer", "true", "false where something is offered on from others: that goes on no further")
	}
	if p.NoTunnel && (p.Reoffer || len(p.ReofferFrom) > 0 || len(p.Services) > 0) {
		return Invalid("noTunnel", "true", "false where peers may offer on what they are granted, something is offered on from others, or services are in common: all of these need a tunnel")
	}
	if len(p.ReofferFrom) > maxReofferFrom {
		return Invalid("reofferFrom", fmt.Sprint(len(p.ReofferFrom)), fmt.Sprintf("at most %d peers", maxReofferFrom))
	}
	if p.BatteryAbove < 0 || p.BatteryAbove > 99 {
		return Invalid("batteryAbove", fmt.Sprint(p.BatteryAbove), "a percentage from 1 to 99, or 0 for no such condition")
	}
	if d, err := time.ParseDuration(cmp.Or(p.IdleFor, "1m")); err != nil || d < time.Minute || d > 24*time.Hour {
		return Invalid("idleFor", p.IdleFor, "a time from 1m to 24h, such as 10m")
	}
	if p.MaxPeers < 0 || p.MaxPeers > maxPeers {
		return Invalid("maxPeers", fmt.Sprint(p.MaxPeers), fmt.Sprintf("a number from 1 to %d, or 0 for any number", maxPeers))
	}
	if _, is := p.MaxPerPeer[GPU]; is {
		return Invalid("maxPerPeer", GPU, "the whole name of a resource, such as nvidia.com/gpu")
	}
	if err := CheckResources("maxPerPeer", p.MaxPerPeer, true); err != nil {
		return err
	}
	if err := CheckReserve("reserve", p.Reserve); err != nil {
		return err
	}
	if err := CheckPrices("prices", p.Prices); err != nil {
		return err
	}
	return CheckResources("amounts", p.Amounts, true)
}

// CheckReserve says whether amounts are a reserve: such as are shared, but none of what is free.
func CheckReserve(field string, r Resources) error {
	for name, amount := range r {
		if name == GPU {
			return Invalid(field, name, "the whole name of a resource, such as nvidia.com/gpu")
		}
		if strings.HasSuffix(amount, OfFree) {
			return Invalid(field+"."+name, amount, "an amount, or a share of all there is such as 20%")
		}
	}
	return CheckResources(field, r, true)
}

var namespaces = regexp.MustCompile(`^[-a-z0-9*]+$`)

const (
	maxServices    = 64
	maxCatalogues  = 32
	maxReofferFrom = 64
)

// maxPeers is the most that a policy's bound on peers may be.
const maxPeers = 1000
