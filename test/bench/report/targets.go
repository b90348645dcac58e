package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// target is what the median of a figure is wanted to be.
type target struct {
	figure string
	atMost bool // else at least
	bound  float64
}

// targets are the figures that the project promises. Seconds, megabytes and the like say what this machine can do; ratios
// hold on any.
var targets = []target{
	{figure: "first start, one laptop: kithd, until node Ready", atMost: true, bound: 4},
	{figure: "start with data, one laptop: kithd, until node Ready", atMost: true, bound: 2.5},
	{figure: "Kubernetes that sleeps: asked by the front door, until the answer", atMost: true, bound: 2},
	{figure: "memory, asleep: whole laptop", atMost: true, bound: 40},
	{figure: "idle wake-ups, asleep: whole laptop", atMost: true, bound: 15},
	{figure: "requests, eight at once, front door / direct", bound: 0.87},
	{figure: "accept, until node Ready and tunnel up", atMost: true, bound: 1.5},
	{figure: "one pod Ready, abroad - at home", atMost: true, bound: 0.05},
	{figure: "Deployment of 50 pods: rate, abroad / at home", bound: 0.9},
	{figure: "Deployment of 50 pods: CPU time of both laptops, abroad / at home", atMost: true, bound: 1.25},
	{figure: "Deployment of 1000 pods on fake nodes: rate, abroad / direct", bound: 0.35},
	{figure: "Deployment of 1000 pods on fake nodes: CPU time of both laptops, abroad / direct", atMost: true, bound: 2},
	{figure: "service: the API server's answer, until its endpoints are ready at the peer", atMost: true, bound: 15},
	{figure: "gateway alone, TCP, one stream, gateway / wireguard-go", bound: 1},
	{figure: "gateway alone, TCP, eight streams, gateway / wireguard-go", bound: 1},
	{figure: "gateway alone, UDP, gateway / wireguard-go", bound: 1},
	{figure: "tunnel by its way, TCP, one stream, punched / direct", bound: 0.9},
	{figure: "tunnel by its way, TCP, one stream, relayed / direct", bound: 0.7},
	{figure: "TCP, pod to pod, one stream, tunnel / wireguard-go", bound: 0.8},
	{figure: "TCP, pod to pod, eight streams, tunnel / wireguard-go", bound: 0.8},
	{figure: "UDP, pod to pod, tunnel / wireguard-go", bound: 0.7},
	{figure: "work of the owner, with guests that burn / without", bound: 0.95},
	{figure: "CPU time of guests while the owner works", atMost: true, bound: 5},
	{figure: "layer of an image, from laptop to laptop, from home / plain TLS", bound: 0.8},
	{figure: "files of a volume, copied to a peer, volume move / plain TLS", bound: 0.7},
	{figure: "rolling update of ten pods on two peers, an image that only home has / one that is everywhere", atMost: true, bound: 1.3},
	{figure: "TCP, pod to pod, tunnel, eight streams / one", bound: 1},
	{figure: "1000 objects of a custom kind: rate, in step at the peer / written at home", bound: 0.5},
	{figure: "service of a guest at bob: endpoints ready at the peer - at home", atMost: true, bound: 40},
	{figure: "TCP, guest to guest of another provider, one stream, by home / to home", bound: 0.65},
	{figure: "TCP, guest to guest of another provider, eight streams, by home / to home", bound: 0.65},
	{figure: "TCP, guest to guest of another provider, one stream, directly / to home", bound: 0.9},
	{figure: "TCP, guest to guest of another provider, eight streams, directly / to home", bound: 0.9},
	{figure: "memory, one peer, two pods, consumer: kithd", atMost: true, bound: 60},
	{figure: "memory, one peer, two pods, provider: kithd", atMost: true, bound: 60},
	{figure: "memory, after 1000 pods came and went, consumer: kithd", atMost: true, bound: 100},
	{figure: "memory, after 1000 pods came and went, provider: kithd", atMost: true, bound: 100},
	{figure: "memory, with 10000 pods on fake nodes, consumer: kithd", atMost: true, bound: 150},
	{figure: "memory, with 10000 pods on fake nodes, provider: kithd", atMost: true, bound: 150},
	{figure: "memory, each of 127 further peers with a node, consumer: kithd", atMost: true, bound: 1.5},
	{figure: "memory, 128 peers with nodes, consumer: kithd", atMost: true, bound: 200},
	{figure: "127 peers asked one after the other, until the last is connected", atMost: true, bound: 60},
	{figure: "idle CPU, 128 peers with nodes, consumer: kithd", atMost: true, bound: 2},
	{figure: "idle CPU, one peer, two pods, consumer: kithd", atMost: true, bound: 0.5},
	{figure: "idle CPU, one peer, two pods, provider: kithd", atMost: true, bound: 0.5},
	{figure: "written to disk in an idle day, one peer, two pods, consumer: engine and kithd", atMost: true, bound: 200},
	{figure: "written to disk in an idle day, one peer, two pods, provider: engine and kithd", atMost: true, bound: 200},
	{figure: "database and log, the largest while 1000 pods came and went", atMost: true, bound: 128},
	{figure: "memory, after five calm minutes, consumer: whole laptop", atMost: true, bound: 330},
	{figure: "idle CPU, after five calm minutes, consumer: whole laptop", atMost: true, bound: 2},
	{figure: "idle wake-ups, after five calm minutes, consumer: whole laptop", atMost: true, bound: 350},
	{figure: "idle wake-ups, after five calm minutes, consumer: kith-k8s", atMost: true, bound: 220},
	{figure: "idle wake-ups, after five calm minutes, consumer: kithd", atMost: true, bound: 20},
	{figure: "idle wake-ups, after five calm minutes, consumer: containerd", atMost: true, bound: 40},
}

// Verdict is a target and what came of it.
type Verdict struct {
	Figure string  `json:"figure"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Wanted string  `json:"wanted"` // such as "≤ 60"
	Value  float64 `json:"value"`
	Met    bool    `json:"met"`
}

// judge compares what was measured with the targets.
func (r *Report) judge() {
	r.Targets = nil
	for _, t := range targets {
		for _, f := range r.Figures {
			if f.Name != t.figure {
				continue
			}
			v := Verdict{Figure: f.Name, Unit: f.Unit, N: f.N, Value: f.Median}
			if t.atMost {
				v.Wanted, v.Met = "≤ "+digits(t.bound), v.Value <= t.bound
			} else {
				v.Wanted, v.Met = "≥ "+digits(t.bound), v.Value >= t.bound
			}
			r.Targets = append(r.Targets, v)
		}
	}
}

func (r *Report) verdicts(to io.Writer) {
	if len(r.Targets) == 0 {
		return
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nn\tmedian\twanted\tunit\t\t figure")
	for _, v := range r.Targets {
		verdict := "met"
		if !v.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t %s\n", v.N, digits(v.Value), v.Wanted, v.Unit, verdict, v.Figure)
	}
	_ = w.Flush()
}
