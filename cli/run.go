package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// runNamespace is where `kith run` makes its pods unless told otherwise; the command offloads it.
const runNamespace = "run"

// atHome is the word for no peer.
const atHome = "home"

// labelPeer is on the nodes of peers; the same as kith.dev/core/api/v1alpha1.LabelPeer, which would bring Kubernetes' code.
const labelPeer = "kith.dev/peer"

// virtualNode is what the names of peers' nodes begin with; the same as kith.dev/core/api/v1alpha1.VirtualNodePrefix.
const virtualNode = "kith-"

// running is what `kith run` is asked to do.
type running struct {
	at, namespace, cpu, memory string
	env                        []string
	devices                    map[string]string
	interactive, tty           bool
	image                      string
	args                       []string
	// command takes the place of the image's own; nil: that one is run.
	command []string
}

func (p commands) runCommand() *cobra.Command {
	var r running
	c := &cobra.Command{
		Use:   "run [flags] IMAGE [ARGUMENT]...",
		Short: "Run a command in a pod, at a peer if there is room",
		Long: `Run a command in a pod, at a peer if there is room, and show what it prints. The exit code is the command's. The pod goes when
the command has ended, or when you end this one.

The image is one that this laptop has (kith image load), which the peer gets from here, or one of a registry; it is asked for only
where it is not there yet. What follows the image are arguments for it.

The pod is made in the namespace ` + runNamespace + `, which is offloaded to all peers the first time, or in one of yours.`,
		Example: "  kith run shop/tests:dev -v ./...\n  kith run -it --at bob debian:13 bash\n  cat data.csv | kith run -i --cpu 2 --memory 4Gi tools/convert:1 --to parquet > data.parquet",
		Args:    program.Between(1, -1), ValidArgsFunction: p.completeImages(),
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&r.at, "at", "", "run it at this peer and nowhere else, or at "+atHome)
	f.StringVarP(&r.namespace, "namespace", "n", runNamespace, "make the pod in this namespace; to run abroad it must be offloaded")
	f.StringVar(&r.cpu, "cpu", "", "ask for so much, and use no more: 2, 500m")
	f.StringVar(&r.memory, "memory", "", "likewise: 4Gi")
	f.StringToStringVar(&r.devices, "resource", nil, "ask for devices: nvidia.com/gpu=1")
	f.StringArrayVarP(&r.env, "env", "e", nil, "set a variable: NAME=VALUE; may be given several times")
	f.BoolVarP(&r.interactive, "interactive", "i", false, "pass the standard input on")
	f.BoolVarP(&r.tty, "tty", "t", false, "with a terminal")
	_ = c.RegisterFlagCompletionFunc("at", p.completePeers(-1))
	_ = c.RegisterFlagCompletionFunc("namespace", p.completeOffloads())
	c.RunE = func(c *cobra.Command, args []string) error {
		r.image, r.args = args[0], args[1:]
		for _, e := range r.env {
			if !strings.Contains(e, "=") {
				return &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("%q sets no variable", e), Do: "NAME=VALUE", Field: "env"}
			}
		}
		if r.tty && !p.InTerminal {
			return &api.Error{Code: api.CodeInvalid, Message: "-t needs a terminal", Reason: "the standard input is none", Do: "leave -t out", Field: "tty"}
		}
		return p.run(c, r)
	}
	return c
}

// run runs it and gives how its container ended, as an error unless that was well.
func (p commands) run(c *cobra.Command, r running) error {
	kubectl, first, err := kubectlProgram()
	if err != nil {
		return err
	}
	dir, file, err := p.kubeconfigFile(c)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(kubectl, slices.Concat(first, args)...)
		cmd.Env = environment(os.Environ(), "KUBECONFIG="+file)
		return cmd
	}
	if err := p.runWhere(c, r, command); err != nil {
		return err
	}
	name := r.name()
	create := command("-n", r.namespace, "create", "-f", "-")
	create.Stdin = strings.NewReader(r.pod(name))
	if out, err := create.CombinedOutput(); err != nil {
		return &api.Error{Code: api.CodeInvalid, Message: "the pod cannot be made", Reason: strings.TrimSpace(string(out))}
	}
	// However it ends, also by a signal, which kubectl gets too.
	defer func() {
		_ = command("-n", r.namespace, "delete", "pod", name, "--ignore-not-found", "--wait=false").Run()
	}()
	return p.follow(c.Context(), r, name, command)
}

// runningPod is what is read of the pod.
type runningPod struct {
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase             string `json:"phase"`
		Reason            string `json:"reason"`
		Message           string `json:"message"`
		ContainerStatuses []struct {
			State struct {
				Waiting *struct {
					Reason  string `json:"reason"`
					Message string `json:"message"`
				} `json:"waiting"`
				Running    *struct{} `json:"running"`
				Terminated *struct {
					ExitCode int    `json:"exitCode"`
					Reason   string `json:"reason"`
					Message  string `json:"message"`
				} `json:"terminated"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

// startError is the reason of a container that never ran, as kubelets say it.
const startError = "StartError"

// Reasons for which a container waits that do not pass by themselves, as kubelets say them; the first failure to get an image may.
var inVain = []string{"ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"}

// follow shows what the pod prints, from when it runs to when it has ended.
func (p commands) follow(ctx context.Context, r running, name string, kubectl func(...string) *exec.Cmd) error {
	watch := kubectl("-n", r.namespace, "get", "pod", name, "--watch", "-o", "json")
	out, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		return &api.Error{Code: api.CodeInternal, Message: watch.Path + " cannot be run", Reason: err.Error()}
	}
	end := sync.OnceFunc(func() { _ = watch.Process.Kill(); _ = watch.Wait() })
	defer end()
	defer context.AfterFunc(ctx, func() { _ = watch.Process.Kill() })()

	var shown bool // its output
	var node, said string
	for next := json.NewDecoder(out); ; {
		var pod runningPod
		if err := next.Decode(&pod); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &api.Error{Code: api.CodeUnavailable, Message: "the pod is not seen any more", Reason: err.Error(), Do: "`kith status` shows how the engine is"}
		}
		if node != pod.Spec.NodeName {
			if node = pod.Spec.NodeName; p.ErrTerminal {
				fmt.Fprintf(p.Err, "at %s\n", strings.TrimPrefix(node, virtualNode))
			}
		}
		s := pod.Status
		if s.Reason != "" && s.Message != said {
			said = s.Message
			fmt.Fprintln(p.Err, screen.Clean(said))
		}
		if len(s.ContainerStatuses) == 0 {
			if s.Phase == "Failed" {
				return &api.Error{Code: api.CodeUnavailable, Message: "the pod was not run", Reason: s.Message}
			}
			continue
		}
		switch now := s.ContainerStatuses[0].State; {
		case now.Waiting != nil && slices.Contains(inVain, now.Waiting.Reason):
			return &api.Error{Code: api.CodeUnavailable, Message: "the command was not run", Reason: now.Waiting.Message, Do: fmt.Sprintf("`kith image load %s` brings an image here that docker or podman has", r.image)}
		case now.Terminated != nil && now.Terminated.Reason == startError:
			return &notStarted{&api.Error{Code: api.CodeUnavailable, Message: "the command could not be started", Reason: now.Terminated.Message}}
		case now.Running != nil || now.Terminated != nil:
			if !shown {
				shown = true
				if err := p.child(r.output(name, now.Terminated != nil, kubectl)); err != nil && now.Terminated == nil && ctx.Err() != nil {
					return err
				}
			}
			if now.Terminated == nil {
				continue
			}
			if code := now.Terminated.ExitCode; code != 0 {
				return program.Exit(code)
			}
			return nil
		}
	}
}

// notStarted is that the image is there, and the command is not in it.
type notStarted struct{ why *api.Error }

func (e *notStarted) Error() string { return e.why.Error() }
func (e *notStarted) Unwrap() error { return e.why }

// output shows what the pod prints: all of it, or, when it reads from here, from now on.
func (r running) output(name string, ended bool, kubectl func(...string) *exec.Cmd) *exec.Cmd {
	if !r.interactive && !r.tty || ended {
		return kubectl("-n", r.namespace, "logs", "--follow", name)
	}
	args := []string{"-n", r.namespace, "attach", name, "--quiet"}
	if r.interactive {
		args = append(args, "--stdin")
	}
	if r.tty {
		args = append(args, "--tty")
	}
	return kubectl(args...)
}

// runWhere makes sure that the pod may run where it is to.
func (p commands) runWhere(c *cobra.Command, r running, kubectl func(...string) *exec.Cmd) error {
	peers, err := program.Call(p.Program, c, (*client.Client).Peers)
	if err != nil {
		return err
	}
	abroad := slices.ContainsFunc(peers, func(x api.Peer) bool { return x.Node != "" && (r.at == "" || x.Name == r.at) })
	if r.at != "" && r.at != atHome && !abroad {
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("%s runs nothing for this laptop", r.at), Reason: "there is no contract with a peer of that name", Do: fmt.Sprintf("`kith peer %s` asks for one; `kith peers` shows who is there", r.at), Field: "at"}
	}
	offloads, err := program.Call(p.Program, c, (*client.Client).Offloads)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(offloads, func(o api.Offload) bool { return o.Namespace == r.namespace })
	switch {
	case r.namespace != runNamespace && i < 0 && r.at != "" && r.at != atHome:
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("pods of namespace %s run at home only", r.namespace), Do: fmt.Sprintf("`kith offload %s`, or leave -n out", r.namespace), Field: "namespace"}
	case r.namespace != runNamespace || i >= 0:
		return nil
	}
	if kubectl("get", "namespace", runNamespace).Run() == nil {
		return nil // its owner brought it home
	}
	if out, err := kubectl("create", "namespace", runNamespace).CombinedOutput(); err != nil {
		return &api.Error{Code: api.CodeUnavailable, Message: "the namespace " + runNamespace + " cannot be made", Reason: strings.TrimSpace(string(out)), Do: "name one that you may use with -n"}
	}
	if !abroad {
		return nil
	}
	options := api.OffloadOptions{}
	if err := options.Check(); err != nil {
		return err
	}
	_, err = program.Long(p.Program, c, 0, func(ctx context.Context, kithd *client.Client, g *program.Progress) (api.Offload, error) {
		return kithd.Offload(ctx, runNamespace, options, g.Report)
	})
	if err != nil { // the next time it would be taken for one that its owner wants at home
		_ = kubectl("delete", "namespace", runNamespace, "--wait=false").Run()
	}
	return err
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// name is one for the pod, which begins with the image's.
func (r running) name() string {
	base := r.image[strings.LastIndexByte(r.image, '/')+1:]
	base, _, _ = strings.Cut(base, "@")
	base, _, _ = strings.Cut(base, ":")
	base = strings.Trim(notInNames.ReplaceAllString(strings.ToLower(base), "-"), "-")
	return strings.TrimLeft(base[:min(len(base), 40)]+"-", "-") + strings.ToLower(rand.Text()[:6])
}

// pod is the manifest of the pod.
func (r running) pod(name string) string {
	type object = map[string]any
	peer := func(operator string, values ...string) object {
		e := object{"key": labelPeer, "operator": operator}
		if len(values) > 0 {
			e["values"] = values
		}
		return object{"matchExpressions": []any{e}}
	}
	required := func(term object) object {
		return object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []any{term}}}
	}
	var where object
	switch r.at {
	case "":
		where = object{"preferredDuringSchedulingIgnoredDuringExecution": []any{object{"weight": 100, "preference": peer("Exists")}}}
	case atHome:
		where = required(peer("DoesNotExist"))
	default:
		where = required(peer("In", r.at))
	}
	env := []any{}
	for _, e := range r.env {
		key, value, _ := strings.Cut(e, "=")
		env = append(env, object{"name": key, "value": value})
	}
	amounts := object{}
	if r.cpu != "" {
		amounts["cpu"] = r.cpu
	}
	if r.memory != "" {
		amounts["memory"] = r.memory
	}
	for name, n := range r.devices {
		amounts[name] = n
	}
	text, _ := json.Marshal(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": object{"run": name}}, "spec": object{
		"restartPolicy": "Never", "automountServiceAccountToken": false, "affinity": object{"nodeAffinity": where},
		"containers": []any{object{
			"name": "run", "image": r.image, "imagePullPolicy": "IfNotPresent", "command": r.command, "args": r.args, "env": env,
			"stdin": r.interactive, "stdinOnce": r.interactive, "tty": r.tty, "resources": object{"requests": amounts, "limits": amounts},
		}},
	}})
	return string(text)
}
