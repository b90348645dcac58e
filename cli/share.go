package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// shareFlags are the flags of kith share.
type shareFlags struct {
	amounts     program.Amounts
	policy, to  string
	autoAccept  bool
	podSecurity string
	internet    bool
	tunnel      bool
	direct      bool
	bandwidth   string
	sameName    bool
	services    string
	hours, zone string
	reserve     string
	perPeer     string
	peers       int32
	onMains     bool
	battery     int32
	idle        string
	notMetered  bool
	cool        bool
	dry         bool
	deviceClass string
	keepVolumes string
	notice      string
	wake        string
	listAt      string
	reoffer     bool
	reofferFrom string
	each        bool
	margin      string
	prices      map[string]string
}

func (p commands) shareCommand() *cobra.Command {
	var f shareFlags
	c := p.Lists(&cobra.Command{
		Use:   "share [PERCENT|off|on]",
		Short: "Show or set what this machine offers, and to whom",
		Long: `Show or set what this machine offers, and to whom.

Without anything it lists the policies. A percentage offers that part of processors, memory, pods and scratch storage;
flags set single resources and leave the others as they are; 0 takes one out of the offer. "off" accepts nothing new,
while contracts in force stay; "on", or any new amount, ends that.

What your own pods request here is promised to nobody anew: it is counted in steps of half a processor, 512Mi of memory, 1Gi
of scratch storage and 10 pods, or of a 32nd of all where that is more. What you said yes to, and what was signed, stays.

An amount may be a part of what there is, as in --cpu 50%, or of what your own pods leave free of it at the moment: --cpu "50% of free". --reserve
keeps an amount free for you in any case. Neither takes anything back of what was signed.

Devices that a device plugin counts on this machine's node, as GPUs, are offered only when they are named: --gpu 1, where there is one
kind of GPU, and --resource with the name that the node has it by for any other. --device-runtime-class names the RuntimeClass
of guests that ask for devices, where NVIDIA's runtime shows them (docs/gpu.md).

What is set goes to the policy "default", which is for everybody, unless --policy names another. --to limits a policy to
peers (with commas) or to a label selector on Peer objects (it has a = or is a single !key). Peers that were accepted here
may be given by name; of others only the whole ID counts, since anybody can call himself by a name. IDs are what is kept.

One policy counts for a peer: of those that select it the one with the highest priority, then the first by name; policies do not add up.
"kith share explain PEER" says which that is, what the peer would be offered now, and what keeps it from more.

--hours says when something is offered. Outside of them nothing is, and a contract that is signed in them ends with them at the latest.

--price names what one unit of a resource costs for an hour of what a peer's pods request: a core of cpu, a GiB of memory or storage, one device. That of
network is for each GB that they send home and get from there. All prices of a policy are in one currency, of ISO 4217 or any unit of account; 0 takes one out. Peers agree to prices before they sign, and contracts in
force keep theirs (docs/prices.md).

--tunnel=false makes contracts that are signed from then on without a network between the clusters, as for batch work: guests get logs, exec,
configuration, secrets, images and, if it is allowed, the internet, and no tunnel is there. Both sides sign that. What is in force
keeps its tunnel until it ends, and is not renewed with one (docs/policies.md).

--bandwidth bounds what the guests of all peers under the policy together get and send by the tunnels and the internet, in bits a second. It holds at
once, for those that run too, and is no term of a contract (docs/security.md).

--services names namespaces in which services are in common with peers under the policy, if they name them of this machine too: what a
ServiceExport names here has an address and a name there, SERVICE.NAMESPACE.svc.clusterset.local (docs/services.md).

--list-at names peers who may list what this policy would offer to somebody new, for their peers to see ("kith catalogue", docs/broker.md). Who
finds this machine there asks it as anybody does, and the policy that applies to him decides.

--reoffer lets peers offer on to peers of theirs what they are granted by contracts that are signed from then on; --reoffer-from offers on what providers
of this machine grant it and let be offered on, so that pods of peers may go on to them (docs/broker.md). With --each, peers see each of these providers
as a node of its own beside that of this machine, and their schedulers decide by whom what runs; they learn who these providers are.
--margin has each price be no less than the highest of those providers', and so much more (docs/prices.md).

--keep-volumes is how long the data of peers' volumes is kept here after the end of a contract, from 1h to 365d; without it seven
days. It is a term of the contracts that are signed from then on, and peers agree to less than seven days before they sign.

--notice is how long before it peers are told when you share less than a contract with them grants, from 10s to 30d: then the contract is
revised, and what runs here beyond that is evicted. Without it what was signed stays until the contract is renewed. It is a term of the
contracts that are signed from then on (docs/policies.md).

--wake lets each peer wake this machine from its sleep so many times within 24 hours, for pods that have room nowhere else: never on
battery. It is a term of the contracts that are signed from then on, and taking it away holds at the next sleep (docs/laptop.md).`,
		Example: `  kith share
  kith share 50%
  kith share --cpu 2 --memory 4Gi --pods 20
  kith share --policy family --to bob,carol --cpu 6 --auto-accept
  kith share --policy lab --to team=lab --pod-security restricted
  kith share "50% of free" --reserve cpu=1,memory=4Gi
  kith share --policy lab --to team=lab --max-peers 3 --max-per-peer cpu=2,memory=4Gi
  kith share --gpu 1
  kith share --resource example.com/widget=2
  kith share --internet=false
  kith share --tunnel=false
  kith share --on-mains --battery-above 40
  kith share --idle-for 10m --not-metered
  kith share --direct
  kith share --bandwidth 20M
  kith share --policy friends --to carol --cpu 50% --memory 50% --pods 50 --hours "Mon-Fri 18:00-08:00; Sat,Sun 00:00-24:00"
  kith share --services 'shop,team-*'
  kith share --list-at bob
  kith share explain bob
  kith share --storage 20Gi --keep-volumes 30d
  kith share --storage 20Gi,fast=2Gi
  kith share 50% --notice 24h
  kith share 50% --wake 3/day
  kith share --price cpu=0.02EUR,memory=0.004EUR
  kith share --reoffer
  kith share --policy shop --to alice 50% --reoffer-from carol,dave
  kith share --reoffer-from all --each
  kith share --policy shop --to alice 50% --reoffer-from carol,dave --margin 10%
  kith share off
  kith share 80% --dry-run`,
		Args: program.Between(0, 1), ValidArgsFunction: cobra.FixedCompletions([]string{"50%", "off", "on"}, cobra.ShellCompDirectiveNoFileComp),
	})
	f.amounts.Flags(c)
	c.Flags().StringVar(&f.policy, "policy", "", "the policy to set (default \""+api.DefaultPolicy+"\")")
	c.Flags().StringVar(&f.to, "to", "", "peers, or a label selector, that the policy is for; \"\" is everybody")
	c.Flags().BoolVar(&f.autoAccept, "auto-accept", false, "answer requests under this policy without asking")
	c.Flags().StringVar(&f.podSecurity, "pod-security", "", "what guests may do: restricted, baseline or privileged")
	c.Flags().BoolVar(&f.internet, "internet", true, "guests may use this machine's way to the internet; its LAN stays closed to them")
	c.Flags().BoolVar(&f.tunnel, "tunnel", true, "contracts have a tunnel; without one guests reach nothing of their home, and nothing there reaches them")
	c.Flags().BoolVar(&f.direct, "direct", false, "guests may meet those of their home at other providers without going by home; these learn this machine's address")
	c.Flags().StringVar(&f.bandwidth, "bandwidth", "", "`RATE` in bits a second, such as 20M or ingress=50M,egress=10M, of all guests under the policy together; \"\" is no bound")
	c.Flags().BoolVar(&f.sameName, "same-name", false, "peers may keep the names of their namespaces here, except reserved ones")
	c.Flags().StringVar(&f.services, "services", "", "`NAMESPACES`, with commas and *, in which services are in common with peers that say so too; \"\" is none")
	c.Flags().StringVar(&f.reserve, "reserve", "", "`NAME=AMOUNT` with commas: what stays free for you beside what your pods request, such as cpu=2,memory=20%; \"\" is nothing")
	c.Flags().StringVar(&f.perPeer, "max-per-peer", "", "`NAME=AMOUNT` with commas: the most that one peer may have, such as cpu=2,memory=4Gi; \"\" is all that is shared")
	c.Flags().Int32Var(&f.peers, "max-peers", 0, "`NUMBER` of peers that may hold contracts under the policy at once; 0 is any number")
	c.Flags().BoolVar(&f.onMains, "on-mains", false, "offer something new only while this machine is on mains")
	c.Flags().Int32Var(&f.battery, "battery-above", 0, "offer something new only while its batteries are above this `PERCENTAGE`; 0 is however full they are")
	c.Flags().StringVar(&f.idle, "idle-for", "", "offer something new only when nobody has used its desktop for this `TIME`, such as 10m; \"\" is whoever uses it")
	c.Flags().BoolVar(&f.notMetered, "not-metered", false, "offer something new only while its network is not paid for by the amount")
	c.Flags().BoolVar(&f.cool, "cool", false, "offer something new only while this machine is not near to where its kernel slows it down for its heat")
	c.Flags().StringVar(&f.hours, "hours", "", "`HOURS` in which something is offered, such as \"Mon-Fri 18:00-08:00; Sat,Sun 00:00-24:00\"; \"\" is always")
	c.Flags().StringVar(&f.zone, "time-zone", "", "`ZONE` of the hours, such as Europe/Berlin; \"\" is that of this machine")
	c.Flags().StringToStringVar(&f.prices, "price", nil, "`RESOURCE=PRICE` of one unit of it for an hour, for example cpu=0.02EUR; 0 is free")
	program.DryRunFlag(c, &f.dry)
	c.Flags().StringVar(&f.deviceClass, "device-runtime-class", "", "`RUNTIMECLASS` of guests that ask for devices, for example nvidia; \"\" is that of all guests")
	c.Flags().StringVar(&f.keepVolumes, "keep-volumes", "", "`TIME`, such as 36h or 30d, that peers' volumes are kept after the end of a contract; \"\" is seven days")
	c.Flags().StringVar(&f.notice, "notice", "", "`TIME`, such as 2h or 3d, before which peers are told that a contract in force is lowered; \"\" is not before its renewal")
	c.Flags().StringVar(&f.wake, "wake", "", "how often a peer may wake this machine when it sleeps, such as `3/day`; \"\" is never")
	c.Flags().StringVar(&f.listAt, "list-at", "", "`PEERS` with commas who may list what this policy would offer to somebody new; \"\" is nobody")
	c.RegisterFlagCompletionFunc("list-at", p.completePeers(-1))
	c.Flags().BoolVar(&f.reoffer, "reoffer", false, "peers may offer on to others what they are granted from now on")
	c.Flags().StringVar(&f.reofferFrom, "reoffer-from", "", "`PEERS`, with commas, whose grants to this machine are offered on where they allow it; all is all of them, \"\" is none")
	c.Flags().StringVar(&f.margin, "margin", "", "`PERCENTAGE` on top of the prices of those from whom something is offered on, such as 10%; \"\" is this policy's own prices alone")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var unknown *pflag.NotExistError // -5% reads as flags: it is an amount below nothing
		if errors.As(err, &unknown) && strings.IndexAny(unknown.GetSpecifiedShortnames(), "0123456789.") == 0 {
			return api.Invalid("share", "-"+unknown.GetSpecifiedShortnames(), partOrWord)
		}
		return c.Parent().FlagErrorFunc()(c, err)
	})
	c.RegisterFlagCompletionFunc("policy", p.completePolicies())
	c.RegisterFlagCompletionFunc("to", p.completePeers(-1))
	c.Flags().BoolVar(&f.each, "each", false, "peers see each of these providers as a node of its own, and choose by whom what runs")
	c.RegisterFlagCompletionFunc("reoffer-from", p.completePeers(-1))
	c.RegisterFlagCompletionFunc("device-runtime-class", cobra.FixedCompletions([]string{"nvidia"}, cobra.ShellCompDirectiveNoFileComp))
	c.RegisterFlagCompletionFunc("pod-security", cobra.FixedCompletions([]string{"restricted", "baseline", "privileged"}, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, args []string) error {
		change, err := f.change(c, args)
		if err != nil {
			return err
		}
		if reflect.ValueOf(change).IsZero() {
			if f.dry {
				return &api.Error{Code: api.CodeInvalid, Message: "--dry-run goes with what is to be set", Do: "for example `kith share 50% --dry-run`", Field: "dry-run"}
			}
			return program.List(p.Program, c, screen.NonEmpty(f.policy), policyListing)
		}
		set, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) (api.Policy, error) {
			if f.dry {
				return kithd.WouldSetPolicy(ctx, cmp.Or(f.policy, api.DefaultPolicy), change)
			}
			return kithd.SetPolicy(ctx, cmp.Or(f.policy, api.DefaultPolicy), change)
		})
		if err != nil {
			return err
		}
		if done, err := p.Machine(set); done {
			return err
		}
		if f.dry {
			return p.wouldShare(set)
		}
		return program.Print(p.Program, []api.Policy{set}, policyListing)
	}
	c.AddCommand(p.shareExplainCommand())
	return c
}

// wouldShare says what a policy would become.
func (p commands) wouldShare(would api.Policy) error {
	if would.Changed == "" {
		p.Would()
		return nil
	}
	p.Would("the sharing policy "+would.Name+" is changed: "+would.Changed, "what was signed stays")
	fmt.Fprintln(p.Out)
	return program.Print(p.Program, []api.Policy{would}, policyListing)
}

func (p commands) undoCommand() *cobra.Command {
	dry := false
	c := p.Things(&cobra.Command{
		Use:   "undo",
		Short: "Take back the last change of what is shared",
		Long: `Take back the last change of what is shared, as the button of the tray's notification does: the policy becomes what it was before "kith share"
or the tray changed it. Doing it again brings the change back. What was signed, or accepted, in between stays.

kithd remembers that change until it ends. Nothing is done when the policy was changed since, by kubectl for example.`,
		Example: "  kith undo --dry-run\n  kith undo",
		Args:    program.Between(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			undo := (*client.Client).Undo
			if dry {
				undo = (*client.Client).WouldUndo
			}
			policy, err := program.Call(p.Program, c, undo)
			if err != nil {
				return err
			}
			if done, err := p.Machine(policy); done {
				return err
			}
			if dry {
				return p.wouldShare(policy)
			}
			fmt.Fprintf(p.Out, "the last change of the sharing policy %s is taken back: %s\n", screen.Clean(policy.Name), screen.CleanLines(policy.Changed))
			return nil
		},
	})
	program.DryRunFlag(c, &dry)
	return c
}

// partOrWord is what kith share takes as its argument.
const partOrWord = "a whole percentage from 0% to 100%, off or on"

var isLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// change makes one change of all flags; it is zero when none says anything.
func (f *shareFlags) change(c *cobra.Command, args []string) (change api.PolicyChange, err error) {
	named, err := f.amounts.Shared()
	if err != nil {
		return change, err
	}
	if len(args) == 1 {
		switch word := args[0]; word {
		case "off", "on":
			change.Paused = new(word == "off")
		default:
			word, free := strings.CutSuffix(word, api.OfFree)
			part := strings.TrimSuffix(word, "%") + "%" // 50 means 50%: there is nothing else that it could be of
			if api.CheckPercent("share", part) != nil {
				return change, api.Invalid("share", args[0], partOrWord)
			}
			if free {
				part += api.OfFree
			}
			change.Amounts = api.ShareOf(part)
		}
	}
	for name, amount := range named {
		if change.Amounts == nil {
			change.Amounts = map[string]string{}
		}
		if change.Amounts[name] = amount; amount == "0" {
			change.Amounts[name] = "" // not offered
		}
	}
	if len(change.Amounts) > 0 && change.Paused == nil {
		change.Paused = new(false)
	}
	if change.Prices, err = pricesGiven(f.prices); err != nil {
		return change, err
	}
	given := c.Flags().Changed
	if given("auto-accept") {
		change.AutoAccept = &f.autoAccept
	}
	if given("pod-security") {
		level := api.PodSecurity(f.podSecurity)
		if err := (api.Policy{PodSecurity: level}).Check(); err != nil || level == "" {
			return change, api.Invalid("pod-security", f.podSecurity, "restricted, baseline or privileged")
		}
		change.PodSecurity = &level
	}
	if given("internet") {
		change.NoInternet = new(!f.internet)
	}
	if given("tunnel") {
		change.NoTunnel = new(!f.tunnel)
	}
	if given("direct") {
		change.Direct = &f.direct
	}
	if given("bandwidth") {
		bandwidth, err := api.ParseBandwidth("bandwidth", f.bandwidth)
		if err != nil {
			return change, err
		}
		change.Bandwidth = &bandwidth
	}
	if given("same-name") {
		change.SameName = &f.sameName
	}
	if given("services") {
		var list api.List[string]
		for s := range strings.SplitSeq(f.services, ",") {
			if s = strings.TrimSpace(s); s != "" {
				list = append(list, s)
			}
		}
		if err := (api.Policy{Services: list}).Check(); err != nil {
			return change, err
		}
		change.Services = &list
	}
	if given("reserve") {
		reserve, err := program.ParseAmounts("reserve", f.reserve)
		if err == nil {
			err = api.CheckReserve("reserve", reserve)
		}
		if err != nil {
			return change, err
		}
		change.Reserve = &reserve
	}
	if given("max-per-peer") {
		most, err := program.ParseAmounts("max-per-peer", f.perPeer)
		if err == nil {
			err = (api.Policy{MaxPerPeer: most}).Check()
		}
		if err != nil {
			return change, err
		}
		change.MaxPerPeer = &most
	}
	if given("max-peers") {
		if err := (api.Policy{MaxPeers: f.peers}).Check(); err != nil {
			return change, err
		}
		change.MaxPeers = &f.peers
	}
	if given("on-mains") {
		change.OnMains = &f.onMains
	}
	if given("battery-above") {
		if err := (api.Policy{BatteryAbove: f.battery}).Check(); err != nil {
			return change, err
		}
		change.BatteryAbove = &f.battery
	}
	if given("idle-for") {
		var idle string
		if f.idle != "" {
			d, err := api.ParseSpan(f.idle)
			if idle = d.String(); err != nil || (api.Policy{IdleFor: idle}).Check() != nil {
				return change, api.Invalid("idle-for", f.idle, "a time from 1m to 24h, such as 10m")
			}
		}
		change.IdleFor = &idle
	}
	if given("not-metered") {
		change.NotMetered = &f.notMetered
	}
	if given("cool") {
		change.Cool = &f.cool
	}
	if given("hours") {
		hours, err := api.ParseHours("hours", f.hours)
		if err != nil {
			return change, err
		}
		change.Hours = &hours
	}
	if given("time-zone") {
		if err := (api.Policy{TimeZone: f.zone}).Check(); err != nil {
			return change, err
		}
		change.TimeZone = &f.zone
	}
	if given("device-runtime-class") {
		if err := (api.Policy{DeviceRuntimeClass: f.deviceClass}).Check(); err != nil {
			return change, err
		}
		change.DeviceRuntimeClass = &f.deviceClass
	}
	if given("keep-volumes") {
		var keep string
		if f.keepVolumes != "" {
			d, err := api.ParseSpan(f.keepVolumes)
			if keep = d.String(); err != nil || (api.Policy{KeepVolumes: keep}).Check() != nil {
				return change, api.Invalid("keep-volumes", f.keepVolumes, "a time from 1h to 365d, such as 36h or 30d")
			}
		}
		change.KeepVolumes = &keep
	}
	if given("notice") {
		var notice string
		if f.notice != "" {
			d, err := api.ParseSpan(f.notice)
			if notice = d.String(); err != nil || (api.Policy{Notice: notice}).Check() != nil {
				return change, api.Invalid("notice", f.notice, "a time from 10s to 30d, such as 24h or 3d")
			}
		}
		change.Notice = &notice
	}
	if given("wake") {
		times, err := api.ParseWake(f.wake)
		if err != nil {
			return change, err
		}
		change.Wake = &times
	}
	if given("list-at") {
		list := api.List[string]{}
		for name := range strings.SplitSeq(f.listAt, ",") {
			if name = strings.TrimSpace(name); name != "" {
				list = append(list, name)
			}
		}
		if err := (api.Policy{Catalogues: list}).Check(); err != nil {
			return change, err
		}
		change.Catalogues = &list
	}
	if given("reoffer") {
		change.Reoffer = &f.reoffer
	}
	if given("reoffer-from") {
		from := api.List[string]{}
		if f.reofferFrom == "all" {
			from = api.List[string]{"*"}
		} else if f.reofferFrom != "" {
			from = strings.Split(f.reofferFrom, ",")
		}
		change.ReofferFrom = &from
	}
	if given("each") {
		change.Each = &f.each
	}
	if given("margin") {
		if err := (api.Policy{Margin: f.margin}).Check(); err != nil {
			return change, err
		}
		change.Margin = &f.margin
	}
	if given("to") {
		if f.policy == "" && f.to != "" {
			return change, &api.Error{
				Code: api.CodeInvalid, Message: "--to needs --policy", Field: "policy",
				Reason: "the policy \"" + api.DefaultPolicy + "\" is for everybody", Do: "name another one, for example --policy family",
			}
		}
		var peers api.List[string]
		var selector string
		if strings.ContainsAny(f.to, "=!()") {
			selector = f.to
		} else if f.to != "" {
			peers = strings.Split(f.to, ",")
		}
		change.Peers, change.Selector = &peers, &selector
	}
	if f.policy != "" && !isLabel.MatchString(f.policy) {
		return change, api.Invalid("policy", f.policy, "a Kubernetes name: a-z, 0-9, - and .")
	}
	return change, nil
}

// pricesGiven reads what --price says.
func pricesGiven(given map[string]string) (prices map[string]string, err error) {
	for name, text := range given {
		price, err := api.ReadPrice("price."+name, text)
		if err != nil {
			return nil, err
		}
		if prices == nil {
			prices = map[string]string{}
		}
		prices[name] = price
	}
	named := maps.Clone(prices)
	maps.DeleteFunc(named, func(_, price string) bool { return price == "" })
	return prices, api.CheckPrices("price", named)
}

// policyListing shows policies, and under them what does not come to what it reads.
var policyListing = program.Listing[api.Policy]{
	Get: (*client.Client).Policies, Match: func(x api.Policy, name string) bool { return x.Name == name }, Noun: "policy", Others: "kith share",
	Columns: policyColumns, None: "nothing is offered; `kith share 50%` offers half of this machine",
	Notes: func(x api.Policy) []program.Note { return program.Notes(x.Name, x.Notes...) },
}

func (p commands) completePolicies() program.Completion {
	return program.Complete(p.Program, -1, (*client.Client).Policies, func(x api.Policy) string { return program.Word(x.Name, x.Name, x.Amounts.String()) })
}

var policyColumns = []screen.Column[api.Policy]{
	{Title: "POLICY", Cell: func(x api.Policy) string { return x.Name }},
	{Title: "FOR", Cell: func(x api.Policy) string {
		var who []string
		for _, peer := range x.Peers {
			who = append(who, cmp.Or(x.Names[peer], peer))
		}
		if who = append(who, screen.NonEmpty(x.Selector)...); len(who) > 0 {
			return strings.Join(who, ",")
		}
		return "everybody"
	}},
	{Title: "CPU", Cell: amount(api.CPU)},
	{Title: "MEMORY", Cell: amount(api.Memory)},
	{Title: "PODS", Cell: amount(api.Pods)},
	{Title: "SCRATCH", Cell: amount(api.EphemeralStorage)},
	{Title: "OTHERS", Need: true, Cell: func(x api.Policy) string {
		var others []string
		for _, name := range x.Amounts.Names() {
			switch name {
			case api.CPU, api.Memory, api.Pods, api.EphemeralStorage:
			default:
				others = append(others, fmt.Sprintf("%s %s", api.Called(name), x.Amounts[name]))
			}
		}
		return strings.Join(others, ", ")
	}},
	{Title: "PRICES", Need: true, Cell: func(x api.Policy) string { return api.PricesInWords(x.Prices) }},
	{Title: "ACCEPTS", Cell: func(x api.Policy) string {
		switch {
		case x.Paused:
			return "nothing new"
		case x.AutoAccept:
			return "all"
		}
		return "asks you"
	}},
	{Title: "PER PEER", Need: true, Cell: func(x api.Policy) string { return x.MaxPerPeer.String() }},
	{Title: "PEERS", Need: true, Cell: func(x api.Policy) string {
		if x.MaxPeers == 0 {
			return ""
		}
		return fmt.Sprintf("at most %d", x.MaxPeers)
	}},
	{Title: "RESERVE", Need: true, Cell: func(x api.Policy) string { return x.Reserve.String() }},
	{Title: "HOURS", Need: true, Cell: func(x api.Policy) string { return api.HoursWords(x.Hours, x.TimeZone) }},
	{Title: "ONLY", Need: true, Cell: func(x api.Policy) string {
		var only []string
		if x.OnMains {
			only = append(only, "on mains")
		}
		if x.BatteryAbove > 0 {
			only = append(only, fmt.Sprintf("battery above %d%%", x.BatteryAbove))
		}
		if x.IdleFor != "" {
			only = append(only, "idle for "+x.IdleWords())
		}
		if x.NotMetered {
			only = append(only, "not metered")
		}
		if x.Cool {
			only = append(only, "cool")
		}
		return strings.Join(only, ", ")
	}},
	{Title: "INTERNET", Need: true, Cell: func(x api.Policy) string {
		if x.NoInternet {
			return "no"
		}
		return ""
	}},
	{Title: "TUNNEL", Need: true, Cell: func(x api.Policy) string {
		if x.NoTunnel {
			return "no"
		}
		return ""
	}},
	{Title: "DIRECT", Need: true, Cell: func(x api.Policy) string {
		if x.Direct {
			return "yes"
		}
		return ""
	}},
	{Title: "BANDWIDTH", Need: true, Cell: func(x api.Policy) string { return x.Bandwidth.String() }},
	{Title: "REOFFER", Need: true, Cell: func(x api.Policy) string {
		if x.Reoffer {
			return "peers may"
		}
		var from []string
		for _, id := range x.ReofferFrom {
			from = append(from, cmp.Or(x.Names[id], map[string]string{"*": "all"}[id], id))
		}
		if len(from) == 0 {
			return ""
		}
		each := ""
		if x.Each {
			each = "each "
		}
		if x.Margin != "" {
			return each + "from " + strings.Join(from, ",") + " at " + x.Margin + " more"
		}
		return each + "from " + strings.Join(from, ",")
	}},
	{Title: "NAMES", Need: true, Cell: func(x api.Policy) string {
		if x.SameName {
			return "as at home"
		}
		return ""
	}},
	{Title: "SERVICES", Need: true, Cell: func(x api.Policy) string { return strings.Join(x.Services, ",") }},
	{Title: "LISTED AT", Need: true, Cell: func(x api.Policy) string {
		var at []string
		for _, peer := range x.Catalogues {
			at = append(at, cmp.Or(x.Names[peer], peer))
		}
		return strings.Join(at, ",")
	}},
	{Title: "DEVICE CLASS", Need: true, Cell: func(x api.Policy) string { return x.DeviceRuntimeClass }},
	{Title: "KEEPS VOLUMES", Need: true, Cell: func(x api.Policy) string {
		if d, err := time.ParseDuration(x.KeepVolumes); err == nil {
			return api.Span(d)
		}
		return ""
	}},
	{Title: "NOTICE", Need: true, Cell: func(x api.Policy) string {
		if d, err := time.ParseDuration(x.Notice); err == nil {
			return api.Span(d)
		}
		return ""
	}},
	{Title: "WAKE", Need: true, Cell: func(x api.Policy) string {
		if x.Wake == 0 {
			return ""
		}
		return api.WakeWords(x.Wake)
	}},
	{Title: "SECURITY", Cell: func(x api.Policy) string { return string(x.PodSecurity) }},
}

func amount(resource string) func(api.Policy) string {
	return func(x api.Policy) string { return x.Amounts[resource] }
}
