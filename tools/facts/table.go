package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// table numbers the types it meets and keeps one line (or block of lines) for each.
type table struct {
	relations map[string]schema.TypeDef
	ids       map[string]int
	lines     []string
	// keys has the fields of an object that are keys of a list of it: only their defaults matter.
	keys map[string]map[string]bool
	// defs are the definitions of the OpenAPI documents.
	defs map[string]*spec.Schema
}

func newTable(relations map[string]schema.TypeDef) *table {
	t := &table{relations: relations, ids: map[string]int{}, keys: map[string]map[string]bool{}, defs: definitions()}
	for _, def := range relations {
		t.collectKeys(def.Atom)
	}
	return t
}

func (t *table) collectKeys(atom schema.Atom) {
	if atom.List != nil {
		if name := atom.List.ElementType.NamedType; name != nil {
			for _, key := range atom.List.Keys {
				if t.keys[*name] == nil {
					t.keys[*name] = map[string]bool{}
				}
				t.keys[*name][key] = true
			}
		}
		t.collectKeys(atom.List.ElementType.Inlined)
	}
	if atom.Map != nil {
		t.collectKeys(atom.Map.ElementType.Inlined)
		for _, field := range atom.Map.Fields {
			t.collectKeys(field.Type.Inlined)
		}
	}
}

func (t *table) print(out io.Writer) {
	for _, line := range t.lines {
		fmt.Fprintln(out, line)
	}
}

// intern keeps the line of a type that has no children of its own, or whose children are known already.
func (t *table) intern(line string) int {
	if id, ok := t.ids[line]; ok {
		return id
	}
	id := len(t.lines)
	t.ids[line] = id
	t.lines = append(t.lines, line)
	return id
}

// leaves are types with a JSON form of their own.
var leaves = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                     "time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                "microtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                 "duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                 "raw",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                 "quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":               "intorstring",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                  "raw",
	"k8s.io/apimachinery/pkg/runtime.Object":                        "raw",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON": "json",
}

// either are types that are an object or, in short, something else.
var either = map[string]string{
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "bool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "array",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "strings",
}

func fullName(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

// node returns the number of a type in one place: the Go type, and how it merges there.
func (t *table) node(goType reflect.Type, ref schema.TypeRef, at *spec.Schema) int {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	if leaf, ok := leaves[fullName(goType)]; ok {
		return t.intern(fmt.Sprintf("S\t%s\t%s", goType, leaf))
	}
	if other, ok := either[fullName(goType)]; ok {
		field, _ := goType.FieldByName("Schema")
		props := t.object(field.Type)
		return t.intern(fmt.Sprintf("E\t%s\t%d\t%s", goType, props, other))
	}
	switch goType.Kind() {
	case reflect.String:
		return t.intern(strings.TrimRight(fmt.Sprintf("S\t%s\tstring\t%s", goType, enum(at)), "\t"))
	case reflect.Bool:
		return t.intern(fmt.Sprintf("S\t%s\tbool", goType))
	case reflect.Int32, reflect.Int64, reflect.Int:
		return t.intern(fmt.Sprintf("S\t%s\t%s", goType, goType.Kind()))
	case reflect.Uint32, reflect.Uint64, reflect.Uint8:
		return t.intern(fmt.Sprintf("S\t%s\t%s", goType, goType.Kind()))
	case reflect.Float64:
		return t.intern(fmt.Sprintf("S\t%s\tfloat64", goType))
	case reflect.Interface:
		return t.intern(fmt.Sprintf("S\t%s\tjson", goType))
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return t.intern(fmt.Sprintf("S\t%s\tbytes", goType))
		}
		element := schema.TypeRef{}
		relation := "a"
		if list := ref.Inlined.List; list != nil {
			element = list.ElementType
			if list.ElementRelationship == schema.Associative {
				relation = "s"
				if len(list.Keys) > 0 {
					relation = "m:" + strings.Join(list.Keys, ",")
				}
			}
		}
		line := fmt.Sprintf("L\t%s\t%d\t%s", goType, t.node(goType.Elem(), element, items(at)), relation)
		if _, ok := reflect.Zero(goType).Interface().(interface{ Marshal() ([]byte, error) }); ok {
			line += "\tw"
		}
		return t.intern(line)
	case reflect.Map:
		element := schema.TypeRef{}
		relation := "g"
		if m := ref.Inlined.Map; m != nil {
			element = m.ElementType
			if m.ElementRelationship == schema.Atomic {
				relation = "a"
			}
		}
		if ref.ElementRelationship != nil && *ref.ElementRelationship == schema.Atomic {
			relation = "a"
		}
		return t.intern(fmt.Sprintf("M\t%s\t%d\t%s", goType, t.node(goType.Elem(), element, values(at)), relation))
	case reflect.Struct:
		id := t.object(goType)
		if ref.ElementRelationship != nil {
			relation := "g"
			if *ref.ElementRelationship == schema.Atomic {
				relation = "a"
			}
			own := "g"
			if def, ok := t.definition(goType); ok && def.Map != nil && def.Map.ElementRelationship == schema.Atomic {
				own = "a"
			}
			if relation != own {
				return t.intern(fmt.Sprintf("C\t%d\t%s", id, relation))
			}
		}
		return id
	}
	must(fmt.Errorf("no rule for type %s", goType))
	return 0
}

func (t *table) definition(goType reflect.Type) (schema.TypeDef, bool) {
	named, ok := reflect.Zero(goType).Interface().(interface{ OpenAPIModelName() string })
	if !ok {
		return schema.TypeDef{}, false
	}
	def, ok := t.relations[named.OpenAPIModelName()]
	return def, ok
}

// object returns the number of a struct; its fields are on lines of their own after it.
func (t *table) object(goType reflect.Type) int {
	for goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	key := "O\t" + fullName(goType)
	if id, ok := t.ids[key]; ok {
		return id
	}
	id := len(t.lines)
	t.ids[key] = id
	t.lines = append(t.lines, "")

	def, known := t.definition(goType)
	relation := "g"
	if known && def.Map != nil && def.Map.ElementRelationship == schema.Atomic {
		relation = "a"
	}
	fields := map[string]schema.StructField{}
	if known && def.Map != nil {
		for _, field := range def.Map.Fields {
			fields[field.Name] = field
		}
	}
	block := &strings.Builder{}
	model := modelName(goType)
	head := fmt.Sprintf("O\t%s\t%s\t%s\t%s", goType, relation, model, unions(t.defs[model]))
	block.WriteString(strings.TrimRight(head, "\t"))
	t.fields(block, goType, known, fields, t.keys[def.Name], t.defs[model], "", "")
	t.lines[id] = block.String()
	return id
}

// fields writes the fields of a struct, those of embedded ones in their place. In protobuf an embedded struct is a
// message of its own, so the number of a field in it is a path; "-" is for what protobuf has elsewhere (kind and
// apiVersion). The names of the embedded structs show in decoding errors.
func (t *table) fields(out *strings.Builder, goType reflect.Type, known bool, relations map[string]schema.StructField, keys map[string]bool, published *spec.Schema, path, within string) {
	for i := range goType.NumField() {
		field := goType.Field(i)
		tag := field.Tag.Get("json")
		if tag == "-" || !field.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		options = "," + options + ","
		number, wire := "-", "-"
		if parts := strings.Split(field.Tag.Get("protobuf"), ","); len(parts) > 2 && path != "-" {
			wire, number = parts[0], path+parts[1]
		}
		if field.Anonymous && (name == "" || strings.Contains(options, ",inline,")) {
			inner := "-"
			if number != "-" {
				inner = number + "."
			}
			embedded := field.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			t.fields(out, embedded, known, relations, keys, published, inner, strings.TrimPrefix(within+"."+field.Name, "."))
			continue
		}
		if name == "" {
			must(fmt.Errorf("field %s.%s has no JSON name", goType, field.Name))
		}
		flags := ""
		if field.Type.Kind() == reflect.Pointer || field.Type.Kind() == reflect.Interface {
			flags += "p"
		}
		if strings.Contains(options, ",omitempty,") {
			flags += "e"
		}
		if strings.Contains(options, ",omitzero,") {
			flags += "z"
		}
		if flags == "" {
			flags = "-"
		}
		relation, declared := relations[name]
		if known && !declared {
			fmt.Fprintf(os.Stderr, "facts: %s.%s is in no apply schema\n", goType, name)
		}
		columns := []string{name, fmt.Sprint(t.node(field.Type, relation.Type, property(published, name))), flags, number, wire}
		strategy, mergeKey := field.Tag.Get("patchStrategy"), field.Tag.Get("patchMergeKey")
		preset := ""
		if keys[name] && relation.Default != nil {
			text, err := json.Marshal(relation.Default)
			must(err)
			preset = string(text)
		}
		omitted := strings.ContainsAny(flags, "ez")
		columns = append(columns, strategy, mergeKey, preset, within, said(field, omitted, published, name))
		fmt.Fprintf(out, "\n\t%s", strings.TrimRight(strings.Join(columns, "\t"), "\t"))
	}
}
