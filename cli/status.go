package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) statusCommand() *cobra.Command {
	return p.Things(&cobra.Command{
		Use:   "status",
		Short: "Show how this machine's part of Kith is",
		Long: `Show how this machine's part of Kith is. What waits for you comes first: requests to answer, codes to compare. What is wrong comes
last, the worst first, each with its reason and what to do: the local Kubernetes that is not well, a disk nearly full, a peer that
cannot be reached, a tunnel without a handshake, another key where a peer was, clocks that differ. "kith doctor" looks closer.

While a company's cluster decides, or is about to, it says which, how far the switch is, and who you are there.`,
		Example: "  kith status\n  kith status -o json | jq .problems",
		Args:    program.Between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := program.Call(p.Program, c, (*client.Client).Status)
			return program.Answer(p.Program, s, err, func(s api.Status) { p.showStatus(p.Out, s) })
		},
	})
}

func (p commands) showStatus(w io.Writer, s api.Status) {
	style := p.Style(p.OutTerminal)
	line := func(name string, words ...string) {
		words = screen.NonEmpty(words...)
		fmt.Fprintf(w, "%-10s %s\n", name, strings.Join(words, ", "))
	}
	for _, wait := range s.Waiting {
		fmt.Fprintf(w, "%s %s\n", style.Yellow("waits for you:"), screen.CleanLines(wait.What))
		p.showDetails(w, wait)
	}
	if len(s.Waiting) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s (%s), %s, kithd %s", style.Bold(screen.Clean(s.Name)), screen.Clean(s.ID), s.Mode, screen.Clean(s.Version))
	if !s.Started.IsZero() {
		fmt.Fprintf(w, ", up %s", screen.Age(p.Now().Sub(s.Started)))
	}
	fmt.Fprintln(w)

	node := s.Engine.Node
	if node != "" && s.Engine.NodeIP != "" {
		node += " at " + s.Engine.NodeIP
	}
	line("Engine", string(s.Engine.Kind), style.Word(string(s.Engine.State)), screen.Clean(s.Engine.Version), named("node", screen.Clean(node)), screen.Clean(s.Engine.Why))
	if s.Engine.Chosen != "" {
		line("", "chosen because "+screen.Clean(s.Engine.Chosen))
	}
	for _, other := range s.Engine.Others {
		line("", screen.Clean(other))
	}
	p.showTether(w, style, s)
	if s.Mode == api.Tethered {
		line("Sharing", "all of it with "+screen.Clean(s.Tether.Peer)+" (kith untether takes it back)")
	} else {
		line("Sharing", p.sharing(style, s.Sharing)...)
	}
	requests := ""
	if n := s.Counts.Requests; n > 0 {
		requests = style.Yellow(screen.Count(n, "request") + " to answer (kith requests)")
	}
	line("Peers", fmt.Sprintf("%d known", s.Counts.Peers), fmt.Sprintf("%d connected", s.Counts.Connected), requests)
	if n := s.Counts.Laptops; n > 0 {
		line("Laptops", screen.Count(n, "laptop")+" tethered to this cluster (kith peers)")
	}
	line("Pods", fmt.Sprintf("%d abroad", s.Counts.PodsAbroad), screen.Count(s.Counts.Guests, "guest"))
	if s.Awake != nil && s.Awake.Kept {
		line("Sleep", style.Yellow(kept(*s.Awake, p.Now())), "kith awake --off ends that")
	}
	for i, t := range s.Transfers {
		line(map[bool]string{true: "Images"}[i == 0], transfer(t))
	}
	var doors []string
	for _, l := range s.Listen {
		doors = append(doors, screen.Clean(fmt.Sprintf("%s %s/%s", l.Name, l.Address, l.Network)))
	}
	if len(doors) > 0 {
		line("Listening", doors...)
	}
	if e := s.Exposed; e != nil {
		at := "this machine has no IPv4 address on a LAN"
		if len(e.Addresses) > 0 {
			at = "at " + screen.Clean(strings.Join(e.Addresses, " and "))
		}
		line("Exposed", style.Yellow("NodePort and LoadBalancer services to the "+strings.ToUpper(screen.Clean(e.To))), at)
	}
	for _, problem := range s.Problems {
		fmt.Fprintf(w, "\n%s %s\n", style.Word(string(problem.Severity))+":", screen.CleanLines(problem.What))
		p.showDetails(w, problem)
	}
}

// transfer says that a peer takes an image, and how far that is.
func transfer(t api.ImageTransfer) string {
	said := fmt.Sprintf("%s takes %s from here: %s", screen.Clean(t.Peer), screen.Clean(screen.ShortImage(t.Image)), bytesOf(t.Sent))
	if t.Size > 0 {
		said += " of " + bytesOf(t.Size)
	}
	if left := t.Left(); left > 0 {
		said += ", " + screen.Age(left) + " left"
	}
	return said
}

// showDetails says why something is so and what to do, below it.
func (p commands) showDetails(w io.Writer, of api.Problem) {
	for _, detail := range screen.NonEmpty(of.Why, of.Do) {
		fmt.Fprintln(w, "  "+strings.ReplaceAll(screen.CleanLines(detail), "\n", "\n  "))
	}
}

func (p commands) sharing(style screen.Style, s api.Sharing) []string {
	if len(s.Amounts) == 0 && !s.Paused {
		return []string{"nothing (kith share 50% offers half)", screen.Clean(s.Why)}
	}
	words := []string{screen.Clean(s.Share)}
	if s.Paused {
		words = append(words, style.Word("paused"))
	}
	words = append(words, screen.CleanLines(screen.Used(s.Used, s.Amounts)), screen.CleanLines(screen.Devices(s.Used, s.Amounts)))
	if s.AutoAccept {
		words = append(words, "requests are accepted without asking")
	}
	return append(words, screen.Clean(s.Why))
}

func named(what, name string) string {
	if name == "" {
		return ""
	}
	return what + " " + name
}

func (p commands) eventsCommand() *cobra.Command {
	var follow bool
	c := p.Things(&cobra.Command{
		Use:     "events",
		Short:   "Show what happened lately",
		Long:    "Show what happened lately, as far as kithd remembers. With -f -o json every event is a line of its own, as it comes.",
		Example: "  kith events\n  kith events -f -o json | jq -r 'select(.severity==\"error\").message'",
		Args:    program.Between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			kithd := p.Client()
			defer kithd.Close()
			var all []api.Event
			for e, err := range kithd.Events(c.Context(), client.EventsFrom{Follow: follow}) {
				switch {
				case err != nil:
					return err
				case p.Format != "" && !follow:
					all = append(all, e)
				case p.Format == program.JSON:
					err = p.WriteJSON(e, "")
				case p.Format == program.YAML:
					fmt.Fprintln(p.Out, "---")
					_, err = p.Machine(e)
				default:
					p.showEvent(e)
				}
				if err != nil {
					return err
				}
			}
			if follow {
				return nil
			}
			_, err := p.Machine(api.List[api.Event](all))
			return err
		},
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	return c
}

func (p commands) showEvent(e api.Event) {
	style := p.Style(p.OutTerminal)
	text := screen.CleanLines(e.Message)
	if e.Object != "" {
		text += " (" + screen.Clean(e.Object) + ")"
	}
	fmt.Fprintf(p.Out, "%s  %s  %-16s  %s\n", e.Time.Local().Format(time.DateTime), style.Padded(string(e.Severity), len(api.SeverityWarning)), screen.Clean(string(e.Type)), text)
}
