package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) whyCommand() *cobra.Command {
	namespace := ""
	c := p.Lists(&cobra.Command{
		Use:   "why [[NAMESPACE/]POD | KIND/NAME]",
		Short: "Say why a pod does not run, or is where it is",
		Long: `List the pods of this cluster that do not run, each with what is nearest to being why; in the namespace given with -n, or in all.

With a name, say why that pod does not run, or is where it is: the causes, the nearest first, each with its laptop, and what to do about it and who
can. Of a pod that no laptop takes that is one for each laptop: how much it asks for and how much is free there, or what keeps it away.

KIND/NAME is a workload: deployment/web, statefulset/db, daemonset, replicaset or job. Then it is about the one of its pods that is farthest
from running. Where there is no pod of the name, a workload of it is meant. Before a slash a namespace is meant if it is none of these words;
-n says so in any case. Without one it is "default".

A guest of a peer can be asked about, too: then it says what this laptop has to do with it. What its containers say is its owner's.

With -o json each cause has a reason that scripts can go by.`,
		Example: "  kith why\n  kith why web\n  kith why shop/web-7d9c8b6f5-x2x4j\n  kith why -n shop deployment/web\n  kith why -n shop web -o json | jq -r '.causes[].reason'",
		Args:    program.Between(0, 1), ValidArgsFunction: p.completeNotRunning(&namespace),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				all, err := program.Call(p.Program, c, (*client.Client).NotRunning)
				if err != nil {
					return err
				}
				return program.Print(p.Program, inNamespace(all, namespace), p.notRunning())
			}
			if p.Format == program.Wide || p.Format == program.Name {
				return api.Invalid("output", p.Format, "json or yaml, with the name of a pod")
			}
			options, err := whyAbout(args[0], namespace)
			if err != nil {
				return err
			}
			why, err := program.CallAbout(p.Program, c, (*client.Client).Why, options)
			return program.Answer(p.Program, why, err, p.showWhy)
		},
	})
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "the namespace (default \"default\")")
	c.RegisterFlagCompletionFunc("namespace", p.completeOffloads())
	return c
}

func inNamespace(all []api.Why, namespace string) []api.Why {
	return slices.DeleteFunc(all, func(w api.Why) bool { return namespace != "" && w.Namespace != namespace })
}

func (p commands) notRunning() program.Listing[api.Why] {
	return program.Listing[api.Why]{
		Columns: []screen.Column[api.Why]{
			{Title: "POD", Cell: func(w api.Why) string { return w.Namespace + "/" + w.Name }},
			{Title: "STATE", Cell: func(w api.Why) string { return string(w.State) }},
			{Title: "LAPTOP", Cell: func(w api.Why) string { return w.Laptop }},
			{Title: "FOR", Cell: func(w api.Why) string { return strings.TrimSuffix(p.Ago(w.Since), " ago") }},
			{Title: "WHY", Cell: func(w api.Why) string {
				what := ""
				if len(w.Causes) > 0 {
					what = w.Causes[0].What
				}
				if n := len(w.Causes) - 1; n > 0 {
					what += fmt.Sprintf(", and %d more", n)
				}
				return what
			}},
		},
		None: "all pods of this cluster run, or are done",
	}
}

// completeNotRunning offers the pods that do not run: they are those that one asks about.
func (p commands) completeNotRunning(namespace *string) program.Completion {
	return func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		return program.Complete(p.Program, 1, (*client.Client).NotRunning, func(w api.Why) string {
			name := w.Namespace + "/" + w.Name
			switch *namespace {
			case "":
			case w.Namespace:
				name = w.Name
			default:
				return ""
			}
			return program.Word(name, name, string(w.State))
		})(c, args, begin)
	}
}

// whyAbout reads what kith why is asked about: POD, NAMESPACE/POD or KIND/NAME.
func whyAbout(arg, namespace string) (api.WhyOptions, error) {
	o := api.WhyOptions{Namespace: namespace, Name: arg}
	if before, name, found := strings.Cut(arg, "/"); found {
		o.Name = name
		if _, kind := api.WorkloadKinds[before]; kind {
			o.Kind = before
		} else if namespace == "" {
			o.Namespace = before
		} else if namespace != before {
			return o, &api.Error{
				Code: api.CodeInvalid, Message: fmt.Sprintf("%q and -n %s are two namespaces", arg, namespace), Field: "namespace",
				Reason: "what is before the slash is a namespace, or pod, deployment, statefulset, daemonset, replicaset or job", Do: "leave one of the two out",
			}
		}
	}
	return api.ParseWhyOptions(o.Query()) // as kithd will, before it is asked
}

// stateWords say how far a pod is: "runs", " on " bob, " for 3m", and the rest.
var stateWords = map[api.PodState]struct{ word, on, rest string }{
	api.PodMissing: {"has no pod", "", ""}, api.PodFailed: {"has failed", " on ", ""}, api.PodWaiting: {"waits", "", ": no laptop takes it"},
	api.PodRefused: {"waits", " at ", ": it is refused"}, api.PodFailing: {"does not come up", " on ", ""},
	api.PodUnknown: {"is", " on ", ": nothing is heard of it"}, api.PodNotReady: {"is not ready", " on ", ""}, api.PodStarting: {"is being started", " on ", ""},
	api.PodEnding: {"is ending", " on ", ""}, api.PodReady: {"runs", " on ", ""}, api.PodDone: {"is done", " on ", ""},
}

func (p commands) showWhy(w api.Why) {
	style := p.Style(p.OutTerminal)
	subject := screen.Clean(w.Namespace + "/" + w.Name)
	if w.Of != "" {
		of := screen.Clean(w.Namespace + " " + w.Of)
		if w.Pods != nil && w.Pods.All > 0 {
			fmt.Fprintf(p.Out, "%s: %d of %s ready\n", of, w.Pods.Ready, screen.Count(w.Pods.All, "pod"))
		}
		if w.Name == "" {
			subject = of
		}
	}
	words := stateWords[w.State]
	text := words.word
	if w.Laptop != "" && words.on != "" {
		text += words.on + screen.Clean(w.Laptop)
	}
	if over := w.State == api.PodFailed || w.State == api.PodDone; !w.Since.IsZero() && over {
		text += ", " + p.Ago(w.Since)
	} else if !w.Since.IsZero() {
		text += " for " + screen.Age(p.Now().Sub(w.Since))
	}
	text += words.rest
	switch w.State {
	case api.PodReady, api.PodDone:
		text = style.Green(text)
	case api.PodStarting, api.PodEnding:
	case api.PodNotReady, api.PodUnknown, api.PodWaiting:
		text = style.Yellow(text)
	default:
		text = style.Red(text)
	}
	fmt.Fprintf(p.Out, "%s %s\n", style.Bold(subject), text)
	if w.Guest != "" {
		fmt.Fprintf(p.Out, "a guest of %s\n", screen.Clean(w.Guest))
	}
	for _, c := range w.Causes {
		if c.Reason == api.CauseRuns || c.Reason == api.CauseDone {
			continue // the line above says so
		}
		fmt.Fprintf(p.Out, "\n%s", screen.CleanLines(c.What))
		if since := p.sinceOf(c); since != "" {
			fmt.Fprintf(p.Out, " (%s)", since)
		}
		fmt.Fprintln(p.Out)
		if c.Why != "" {
			fmt.Fprintln(p.Out, "  "+below(c.Why))
		}
		if c.Do != "" {
			fmt.Fprintf(p.Out, "  %s %s\n", style.Bold(who(w, c)), below(c.Do))
		}
	}
}

// sinceOf says since when a cause is so, or when it was.
func (p commands) sinceOf(c api.Cause) string {
	if c.Since.IsZero() {
		return ""
	}
	switch c.Reason {
	case api.CauseCrashes, api.CauseExited, api.CauseRestarted, api.CauseDeleted, api.CauseEvicted, api.CauseRejected, api.CauseLost:
		return p.Ago(c.Since)
	}
	return "for " + screen.Age(p.Now().Sub(c.Since))
}

// who is the one who can do something about a cause.
func who(w api.Why, c api.Cause) string {
	switch c.Who {
	case api.WhoPeer:
		return "the owner of " + screen.Clean(c.Laptop) + ":"
	case api.WhoHome:
		return "the owner of " + screen.Clean(w.Guest) + ":"
	}
	return "you:"
}

func below(text string) string { return strings.ReplaceAll(screen.CleanLines(text), "\n", "\n  ") }
