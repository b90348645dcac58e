// Command bench measures Kith on labs of its own: real laptops, clusters, pods and tunnels. `make bench` runs it; it
// prints a table and writes every value to build/bench.json. It needs root, for the lab's namespaces.
//
// Machines differ, and one machine differs from itself two minutes later. So what has a partner is measured by turns with
// it, in the same run, and told as a ratio as well. Nothing here may fail because something was slow.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"kith.dev/test/bench/plain"
	"kith.dev/test/bench/report"
)

// options are what the command line says.
type options struct {
	lab      string
	rounds   int
	pods     int
	fakes    int
	peers    int
	stations int
	idle     time.Duration

	against  string // the tree of another build; "" for none
	turns    int
	profiles string // directory for Go's profiles of kithd
	only     []string
	out      string
}

// group measures some figures that need the same things.
type group struct {
	name, what string
	// peered says that alice consumes from bob when the group starts.
	peered bool
	run    func(ctx context.Context, r *rig) error
	// most is how long it may take; 0 means quarterHour.
	most time.Duration
}

// quarterHour is more than nearly each group takes.
const quarterHour = 15 * time.Minute

// groups are in the order in which they run: what needs a lab of its own, then what needs two laptops, then what
// needs them peered, at last what takes the peering apart.
var groups = []group{
	{name: "discovery", what: "laptops come and go; fifty of them", run: discovery},
	{name: "up", what: "a lab of two, until both nodes are Ready", run: up},
	{name: "start", what: "one laptop: first start, one with data, and a Kubernetes that sleeps and wakes up", run: starts},
	{name: "datastore", what: "the writes of an API server on the engine's datastore, and on etcd", run: datastores},
	{name: "alone", what: "memory and idle CPU without a peer", run: alone},
	{name: "frontdoor", what: "the Kubernetes API through the front door and past it", run: frontDoor},
	{name: "mode", what: "tethered to a company, and back", run: modes},
	{name: "peering", what: "ask, accept, connected, unpeer", run: peeringRounds},
	{name: "footprint", what: "memory and idle CPU with a peer and two pods", peered: true, run: footprint},
	{name: "idle", what: "memory, CPU and wake-ups after five minutes in which nothing happened", run: idle},
	{name: "disk", what: "what is written to disks while nothing happens, and for pods that come and go", peered: true, run: disk},
	{name: "crowd", what: "a hub: what 127 simulated peers take", peered: true, run: crowd},
	{name: "namespaces", what: "memory and watches for each of two hundred namespaces at a peer", peered: true, run: namespaces},
	{name: "custom", what: "a thousand objects of a custom kind, until they are at the peer", peered: true, run: custom},
	{name: "pods", what: "one pod abroad and at home", peered: true, run: singlePods},
	{name: "services", what: "a Service, until its endpoints are at the peer", peered: true, run: services},
	{name: "tunnel", what: "throughput and answer times between pods", peered: true, run: tunnel},
	{name: "streams", what: "one stream, eight and UDP between pods, and through plain wireguard-go", peered: true, run: streams},
	{name: "image", what: "an image that only home has, and its layer by turns with plain TLS", peered: true, run: image},
	{name: "moves", what: "a volume with a file of a gigabyte goes to a peer and home", peered: true, run: moves},
	{name: "gateway", what: "the same between two hosts with a gateway alone, and from guest to guest", run: gatewayAlone},
	{name: "ways", what: "the tunnel of two gateways on a LAN, between two routers, and passed on by a third", run: ways},
	{name: "third", what: "from a guest to a guest of another provider, in a lab of three", run: third},
	{name: "broker", what: "one pod at home, at a peer, and by way of a broker, in a lab of three", run: broker},
	{name: "rollout", what: "a Deployment on two peers to a new image that only home has, in a lab of three", run: rollout},
	{name: "nodes", what: "from each node of a cluster of three, through its gateway, to a laptop", run: nodes},
	{name: "owner", what: "work of the provider's owner while guests burn all they get", peered: true, run: owner},
	{name: "recovery", what: "kithd restarts, power fails", peered: true, run: recovery},
	{name: "many", what: "a Deployment abroad and at home", peered: true, run: manyPods},
	{name: "thousand", what: "a Deployment of 1000 pods on fake nodes of the provider", run: thousand},
	{name: "tokens", what: "the same with a service account's token for each pod", run: tokens},
	{name: "tenthousand", what: "ten times as many pods at once: memory of both kithd", run: tenThousand, most: 45 * time.Minute},
	{name: "unpeer", what: "two pods come home", peered: true, run: unpeerWithPods},
}

// quickGroups and quickRounds are -quick.
const (
	quickGroups = "up,peering,footprint,pods,services,tunnel,many"
	quickRounds = 4
)

func main() {
	log.SetFlags(log.Ltime)
	if settings := os.Getenv(plain.Settings); settings != "" {
		if err := plain.Serve(settings); err != nil {
			log.Fatal("plain wireguard-go: ", err)
		}
		return
	}
	if long := os.Getenv(working); long != "" {
		if err := works(long); err != nil {
			log.Fatal("the owner's work: ", err)
		}
		return
	}
	var o options
	var only string
	flag.StringVar(&o.lab, "lab", "bench", "name of the lab; it is made and taken down")
	flag.IntVar(&o.rounds, "rounds", 10, "rounds of what is quick; what is slow takes a part of them")
	flag.IntVar(&o.pods, "pods", 50, "pods of the large Deployment")
	flag.IntVar(&o.fakes, "fakes", 1000, "pods of the Deployment on fake nodes")
	flag.IntVar(&o.peers, "peers", 127, "simulated peers")
	flag.IntVar(&o.stations, "stations", 50, "laptops that see each other")
	flag.DurationVar(&o.idle, "idle", 10*time.Minute, "how long nothing happens while what is written to disks is counted")
	flag.StringVar(&o.profiles, "profiles", "", "directory for profiles of both kithd, after each group, and more of large Deployments")
	flag.StringVar(&only, "only", "", "groups to run, with commas; all when empty")
	quick := flag.Bool("quick", false, "a few rounds of what people ask for first: "+quickGroups)
	flag.StringVar(&o.against, "against", "", "the tree of another build, with bin/ and build/bench, to measure by turns (scripts/bench.sh makes one of a commit)")
	flag.IntVar(&o.turns, "turns", 2, "how often each group of each build runs with -against")
	flag.StringVar(&o.out, "out", "build/bench.json", "where the figures go")
	list := flag.Bool("list", false, "list the groups")
	flag.Parse()
	if *list {
		for _, g := range groups {
			fmt.Printf("%-12s %s\n", g.name, g.what)
		}
		return
	}
	if *quick {
		only = cmp.Or(only, quickGroups)
		o.rounds = min(o.rounds, quickRounds)
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, o); err != nil {
		log.Fatal("bench: ", err)
	}
}

// bench runs the groups. One that fails does not keep the others from running; the failure is told at the end.
func bench(ctx context.Context, o options) error {
	for _, name := range o.only {
		if !slices.ContainsFunc(groups, func(g group) bool { return g.name == name }) {
			return fmt.Errorf("there is no group %q: -list shows them", name)
		}
	}
	if o.against != "" {
		return against(ctx, o)
	}
	r := &rig{options: o, report: report.New()}
	defer r.down()
	before, err := report.Read(o.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var failed []string
	for _, g := range groups {
		if len(o.only) > 0 && !slices.Contains(o.only, g.name) {
			continue
		}
		log.Printf("%s: %s", g.name, g.what)
		r.report.Enter(g.name)
		began := time.Now()
		err := r.measure(ctx, g)
		r.report.Leave(time.Since(began))
		if r.lab != nil {
			r.profile(ctx, g.name, "heap")
		}
		if err != nil {
			log.Printf("%s failed: %v", g.name, err)
			failed = append(failed, g.name+": "+err.Error())
			r.down() // what it left is not known, such as a laptop without power; the next group has a lab made
		}
		if ctx.Err() != nil {
			break
		}
	}
	if before != nil {
		r.report.Compare(before, "")
	}
	return errors.Join(r.report.Finish(failed, os.Stdout, o.out), r.report.Err())
}

func (r *rig) measure(ctx context.Context, g group) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(g.most, quarterHour))
	defer cancel()
	if g.peered {
		if err := r.befriend(ctx); err != nil {
			return err
		}
	}
	return g.run(ctx, r)
}
